"""Code that would slip past the checks is found. `tests/docs/run` runs these cases first."""

import unittest

import blocks


def found(text, page="docs/page.md"):
    return blocks.evasions(page, text) + [problem for block in blocks.read(page, text) for problem in blocks.problems(block)]


class Evasions(unittest.TestCase):
    def test_what_no_test_would_run_is_named(self):
        fence = "```"
        for text, why in [
            ("~~~python\nprint(1)\n~~~\n", "not with ~~~"),
            (f"> {fence}python\n> print(1)\n> {fence}\n", "in a quote"),
            (f"\t{fence}python\nprint(1)\n{fence}\n", "with spaces"),
            ("<pre>deadstop demo</pre>\n", "not HTML"),
            (f"- {fence}python\n  print(1)\n  {fence}\n", "a line of its own"),
            ("Type this:\n\n    deadstop demo\n", "indented code"),
            (f"{fence}python\nprint(1)\n", "not closed"),
            (f"{fence}ruby\nputs 1\n{fence}\n", "not run by any test"),
            (f"{fence}\ndeadstop demo\n{fence}\n", "not run by any test"),
            (f"{fence}console\ndeadstop demo\n{fence}\n", "no line begins with"),
            (f"{fence}text\n$ deadstop demo\n{fence}\n", "use `console`"),
            (f"{fence}python not run: no\nprint(1)\n{fence}\n", "say why"),
            (f"{fence}python norun\nprint(1)\n{fence}\n", "it may be"),
            (f"1. One\n\n   {fence}ts\n   f();\n   {fence}\n", "at the margin"),
        ]:
            with self.subTest(why):
                problems = found(text)
                self.assertTrue(any(why in problem for problem in problems), problems)

    def test_a_readme_has_one_program(self):
        one = "```python\nf()\n```\n"
        self.assertEqual(found(one, "README.md"), [])
        self.assertEqual(found(one * 2), [])
        self.assertIn("only the first", found(one * 2, "README.md")[0])

    def test_what_is_run_is_left_alone(self):
        for text in ("```console\n$ deadstop demo\n```\n", "- an item\n\n    that goes on\n",
                     "```text\nprints this\n```\n", "Say `~~~` or `<pre>`.\n",
                     "1. One\n\n   ```console\n   $ deadstop demo\n   ```\n"):
            with self.subTest(text):
                self.assertEqual(found(text), [])
