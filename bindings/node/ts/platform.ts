// The name of this platform, as the packages with what is compiled for it are called.

type Report = { header?: { glibcVersionRuntime?: string } };

export function platform(): string {
  const { platform, arch } = process;
  if (platform === 'linux') {
    const report = process.report?.getReport() as Report | undefined;
    return `linux-${arch}-${report?.header?.glibcVersionRuntime ? 'gnu' : 'musl'}`;
  }
  return platform === 'win32' ? `win32-${arch}-msvc` : `${platform}-${arch}`;
}
