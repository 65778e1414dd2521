//! Which certificates are trusted: those of the web, which are built in, and private ones that the
//! user adds. Companies inspect TLS or run a CA of their own.

use std::error::Error;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use rustls::{CertificateError, ClientConfig, RootCertStore};

/// What to do about a certificate that no trusted CA has signed.
pub const UNTRUSTED: &str = "its certificate is signed by a CA that is not trusted here; if that is a private \
                             CA, name its PEM file in SSL_CERT_FILE";

/// Why certificates cannot be taken.
#[derive(Debug, thiserror::Error)]
pub enum BadTrust {
    /// The file or folder cannot be read.
    #[error("cannot read certificates from {path}: {why}")]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// What went wrong.
        why: String,
    },
    /// There is none in it.
    #[error("{0} holds no certificate; it must be PEM, with -----BEGIN CERTIFICATE-----")]
    Empty(PathBuf),
    /// TLS does not take it.
    #[error("a private certificate cannot be used: {0}")]
    Refused(#[from] rustls::Error),
}

/// The certificates that are trusted.
///
/// ```
/// use deadstop_client::Trust;
/// let (trust, problems) = Trust::from_environment(|_| None);
/// assert!(trust.config().is_ok() && problems.is_empty());
/// ```
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Trust {
    /// Those besides the built-in ones.
    further: Vec<CertificateDer<'static>>,
}

impl Trust {
    /// The built-in certificates and those that `SSL_CERT_FILE` and `SSL_CERT_DIR` name. What cannot be
    /// read is left out and reported: images set these variables for files that they do not have.
    pub fn from_environment(
        environment: impl Fn(&str) -> Option<String>,
    ) -> (Trust, Vec<BadTrust>) {
        let set = |name| environment(name).filter(|value: &String| !value.is_empty());
        let (mut trust, mut problems) = (Trust::default(), Vec::new());
        if let Some(file) = set("SSL_CERT_FILE") {
            problems.extend(trust.add_file(Path::new(&file)).err());
        }
        let folders = set("SSL_CERT_DIR").unwrap_or_default();
        // An empty list has one empty name.
        for folder in std::env::split_paths(&folders).filter(|it| !it.as_os_str().is_empty()) {
            problems.extend(trust.add_folder(&folder).err());
        }
        (trust, problems)
    }

    /// Trusts the certificates of a PEM file as well.
    pub fn add_file(&mut self, path: &Path) -> Result<(), BadTrust> {
        let unreadable = |why: String| BadTrust::Unreadable { path: path.to_owned(), why };
        let found = CertificateDer::pem_file_iter(path)
            .and_then(Iterator::collect::<Result<Vec<_>, _>>)
            .map_err(|error| unreadable(error.to_string()))?;
        if found.is_empty() {
            return Err(BadTrust::Empty(path.to_owned()));
        }
        self.add(found);
        Ok(())
    }

    /// Trusts one more certificate, given as DER.
    pub fn add_der(&mut self, certificate: Vec<u8>) {
        self.add(vec![CertificateDer::from(certificate)]);
    }

    /// The certificates besides the built-in ones, as DER.
    pub fn further(&self) -> impl Iterator<Item = &[u8]> {
        self.further.iter().map(AsRef::as_ref)
    }

    /// TLS for clients that trust these certificates.
    pub fn config(&self) -> Result<Arc<ClientConfig>, BadTrust> {
        let mut roots = RootCertStore { roots: webpki_roots::TLS_SERVER_ROOTS.to_vec() };
        // The system's bundles hold some that TLS does not take; the others still count.
        let (added, _) = roots.add_parsable_certificates(self.further.iter().cloned());
        if let (0, Some(first)) = (added, self.further.first()) {
            roots.add(first.clone())?;
        }
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()?
            .with_root_certificates(roots)
            .with_no_client_auth();
        Ok(Arc::new(config))
    }

    /// A folder as OpenSSL has it: other files may lie there, and each certificate twice.
    fn add_folder(&mut self, folder: &Path) -> Result<(), BadTrust> {
        let unreadable = |error: io::Error| BadTrust::Unreadable {
            path: folder.to_owned(),
            why: error.to_string(),
        };
        for entry in std::fs::read_dir(folder).map_err(unreadable)? {
            let path = entry.map_err(unreadable)?.path();
            let Ok(found) = CertificateDer::pem_file_iter(path) else { continue };
            self.add(found.filter_map(Result::ok).collect());
        }
        Ok(())
    }

    fn add(&mut self, found: Vec<CertificateDer<'static>>) {
        self.further.extend(found);
        self.further.sort_by(|a, b| a.as_ref().cmp(b.as_ref()));
        self.further.dedup();
    }
}

/// Whether a connection failed because no trusted CA has signed the other side's certificate.
pub fn is_untrusted(error: &(dyn Error + 'static)) -> bool {
    if let Some(rustls::Error::InvalidCertificate(why)) = error.downcast_ref() {
        return matches!(why, CertificateError::UnknownIssuer);
    }
    // An I/O error shows the error inside it as itself, so `source` would pass over that.
    let inside = error.downcast_ref::<io::Error>().and_then(io::Error::get_ref);
    match inside {
        Some(inside) => is_untrusted(inside),
        None => error.source().is_some_and(is_untrusted),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_certificate_is_named() {
        let here = Path::new(env!("CARGO_MANIFEST_DIR"));
        let mut trust = Trust::default();
        let said = |problem: Result<(), BadTrust>| problem.unwrap_err().to_string();
        let missing = said(trust.add_file(&here.join("none.pem")));
        assert!(missing.contains("none.pem"), "{missing}");
        let other = said(trust.add_file(&here.join("Cargo.toml")));
        assert!(other.contains("must be PEM"), "{other}");
        // The variables may name what is not there; that is reported and no more.
        let file = here.join("none.pem").display().to_string();
        let (trust, problems) = Trust::from_environment(|name| match name {
            "SSL_CERT_FILE" => Some(file.clone()),
            "SSL_CERT_DIR" => Some(here.join("src").display().to_string()),
            _ => None,
        });
        assert_eq!((trust, problems.len()), (Trust::default(), 1));
    }

    #[test]
    fn an_untrusted_issuer_is_found_inside_other_errors() {
        let fault = |why| rustls::Error::InvalidCertificate(why);
        let unknown = io::Error::other(fault(CertificateError::UnknownIssuer));
        assert!(is_untrusted(&io::Error::other(unknown)));
        assert!(!is_untrusted(&io::Error::other(fault(CertificateError::Expired))));
        assert!(!is_untrusted(&io::Error::other("no such host")));
    }
}
