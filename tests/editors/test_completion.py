"""Completion as shells offer it; shells that are not installed are skipped."""

import shutil
import subprocess
import unittest

import program


def script(shell: str) -> str:
    return subprocess.run([program.KVCAST, 'completion', shell], check=True, capture_output=True, text=True).stdout


def bash_offers(*words: str) -> list[str]:
    """Returns bash's completions of the last of the words after kvcast."""
    quoted = ' '.join(f"'{w}'" for w in words)
    code = f'{script("bash")}\nCOMP_WORDS=(kvcast {quoted}); COMP_CWORD={len(words)}; _kvcast; printf "%s\\n" "${{COMPREPLY[@]}}"'
    return subprocess.run(['bash', '-c', code], check=True, capture_output=True, text=True, cwd='/').stdout.split()


def fish_offers(line: str) -> list[str]:
    code = f'{script("fish")}\ncomplete -C "{line}"'
    out = subprocess.run(['fish', '-c', code], check=True, capture_output=True, text=True, cwd='/').stdout
    return [offer.split('\t')[0] for offer in out.splitlines()]


class Completion(unittest.TestCase):
    def test_bash_offers_commands(self):
        self.assertEqual(bash_offers('re'), ['report', 'replay'])
        self.assertIn('sweep', bash_offers(''))

    def test_bash_offers_the_options_of_a_command_and_files(self):
        self.assertEqual(bash_offers('report', '--fi'), ['--figures'])
        self.assertEqual(bash_offers('run', 'x.yaml', '--time'), ['--timeline'])
        self.assertIn('tmp', bash_offers('report', 'tm'))
        self.assertNotIn('--figures', bash_offers('run', '--'))

    def test_bash_offers_commands_within_commands(self):
        self.assertIn('synth', bash_offers('trace', 'sy'))
        self.assertIn('--out', bash_offers('trace', 'synth', '--o'))

    def test_bash_offers_the_values_of_an_argument_and_no_files(self):
        self.assertEqual(bash_offers('completion', ''), ['bash', 'zsh', 'fish', '-h', '--help'])
        self.assertEqual(bash_offers('schema', 'r'), ['run'])
        self.assertEqual(bash_offers('completion', 'tm'), [])

    def test_the_other_scripts_contain_the_values_of_an_argument(self):
        self.assertIn("completion) _arguments '*:value:(bash zsh fish)'", script('zsh'))
        self.assertIn("-f -n '__fish_seen_subcommand_from completion' -a 'bash zsh fish'", script('fish'))

    @unittest.skipUnless(shutil.which('fish'), 'fish is not installed')
    def test_fish_offers_the_same(self):
        self.assertEqual(sorted(fish_offers('kvcast re')), ['replay', 'report'])
        self.assertEqual(fish_offers('kvcast report --fi'), ['--figures'])
        self.assertIn('synth', fish_offers('kvcast trace sy'))
        self.assertEqual(fish_offers('kvcast schema r'), ['run'])

    @unittest.skipUnless(shutil.which('zsh'), 'zsh is not installed')
    def test_zsh_accepts_the_script(self):
        done = subprocess.run(['zsh', '-fc', 'autoload -U compinit && compinit -D -u && source /dev/stdin && whence -w _kvcast'],
                              input=script('zsh'), capture_output=True, text=True)
        self.assertEqual((done.returncode, done.stdout.strip(), done.stderr), (0, '_kvcast: function', ''))

    def test_an_unknown_shell_is_refused(self):
        done = subprocess.run([program.KVCAST, 'completion', 'tcsh'], capture_output=True, text=True)
        self.assertEqual(done.returncode, 2)
        self.assertIn('bash', done.stderr)


if __name__ == '__main__':
    program.main()
