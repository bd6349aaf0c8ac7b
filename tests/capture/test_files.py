"""Selection, spool, resuming and the file format, with a decoder made of formulas. Needs only the standard library."""

import contextlib
import io
import json
import random
import struct
import tempfile
import unittest
from pathlib import Path

import support
from kvcast_capture import __main__ as command
from kvcast_capture import drive, plan, safetensors_file, spool
from kvcast_capture.errors import CaptureError

SHAPE = plan.Shape(n_layers=3, n_q_heads=4, n_kv_heads=2, head_dim=4, hidden=6, rope_theta=10000.0)
PROMPT = [7, 3, 11, 2, 5, 13, 1]


def make_plan(**changes) -> plan.Plan:
    given = dict(shape=SHAPE, layers=(0, 2), kv_heads=(0, 1), prompt_tokens=len(PROMPT), decode_steps=3, window=4, block=3,
                 dtype='f32')
    return plan.Plan(**{**given, **changes})


class Formula:
    """A decoder whose numbers identify their location: each is a function of layer, kind, head, position, token and channel."""

    class Block:
        def __init__(self, layer, tokens, begin):
            self.layer, self.tokens, self.begin = layer, tokens, begin

        def rows(self, kind, heads, width, rows):
            return b''.join(struct.pack('<f', Formula.number(self.layer, kind, head, self.begin + r, self.tokens[r], j))
                            for head in range(heads) for r in rows for j in range(width))

        def keys(self):
            return self.rows('keys', 2, 4, range(len(self.tokens)))

        def values(self):
            return self.rows('values', 2, 4, range(len(self.tokens)))

        def queries(self, rows):
            return self.rows('queries', 4, 4, rows)

        def hidden(self, rows):
            return self.rows('hidden', 1, 6, rows)

    def __init__(self, stop_after=None):
        self.shape, self.stop_after, self.history, self.restored = SHAPE, stop_after, [], {}

    @staticmethod
    def number(layer, kind, head, position, token, channel):
        return random.Random(f'{layer} {kind} {head} {position} {token} {channel}').gauss(0, 1)

    def feed(self, tokens, begin, record):
        if self.stop_after == 0:
            raise KeyboardInterrupt
        if self.stop_after is not None:
            self.stop_after -= 1
        for layer in range(SHAPE.n_layers):
            record(layer, Formula.Block(layer, tokens, begin))
        self.history.append((begin, list(tokens)))
        # The next token depends on the block's last token and its position, so that a wrong resume changes all later tokens.
        return (5 * tokens[-1] + begin + len(tokens)) % 17

    def restore(self, layer, keys, values):
        self.restored[layer] = keys, values


class Captures(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.path = Path(self.folder.name)
        self.addCleanup(self.folder.cleanup)

    def capture(self, made=None, decoder=None, out='t.safetensors', **options):
        decoder = decoder or Formula()
        fed = drive.capture(decoder, made or make_plan(), PROMPT, self.path / out, self.path / 'work', {'model': 'formula'},
                            **options)
        return self.path / out, fed

    def numbers(self, path, name):
        entry, data = safetensors_file.read_bytes(path, name)
        return entry['shape'], struct.unpack(f'<{len(data) // 4}f', data)

    def test_numbers_are_stored_where_the_format_requires(self):
        path, fed = self.capture()
        # Greedy: after the prompt's last token 1 at position 6: (5·1 + 7) mod 17 = 12; (60 + 8) mod 17 = 0; (0 + 9) = 9.
        self.assertEqual(fed, [12, 0, 9])
        tokens = PROMPT + fed
        shape, keys = self.numbers(path, 'layers.2.keys')
        self.assertEqual(shape, [2, 10, 4])
        for head, position, channel in ((0, 0, 0), (1, 2, 3), (0, 6, 1), (1, 9, 2)):
            want = Formula.number(2, 'keys', head, position, tokens[position], channel)
            self.assertAlmostEqual(keys[(head * 10 + position) * 4 + channel], want, places=6)
        shape, queries = self.numbers(path, 'layers.0.queries')
        self.assertEqual(shape, [4, 7, 4])  # the last 4 of 7 prompt positions, and 3 steps
        for head, row, channel in ((0, 0, 0), (3, 3, 1), (2, 6, 3)):
            want = Formula.number(0, 'queries', head, 3 + row, tokens[3 + row], channel)
            self.assertAlmostEqual(queries[(head * 7 + row) * 4 + channel], want, places=6)
        _, data = safetensors_file.read_bytes(path, 'query_positions')
        self.assertEqual(struct.unpack('<7q', data), tuple(range(3, 10)))
        self.assertNotIn('layers.1.keys', safetensors_file.read_header(path)[0])
        self.assertTrue(support.check(path)['ok'])
        self.assertFalse((self.path / 'work').exists())

    def test_block_sizes_change_nothing(self):
        whole = self.capture(make_plan(block=100))[0].read_bytes()
        for block in (1, 2, 3, 7):
            self.assertEqual(self.capture(make_plan(block=block), out=f'{block}.safetensors')[0].read_bytes(), whole)

    def test_an_interrupted_capture_resumes(self):
        whole = self.capture()[0].read_bytes()
        for stop in range(6):  # 3 blocks of the prompt and 3 steps
            with self.assertRaises(KeyboardInterrupt):
                self.capture(decoder=Formula(stop), out='r.safetensors')
            # Bytes of an interrupted block must be ignored.
            with open(self.path / 'work' / 'layers.1.values.bin', 'ab') as file:
                file.write(b'torn')
            decoder = Formula()
            again, fed = self.capture(decoder=decoder, out='r.safetensors')
            self.assertEqual(again.read_bytes(), whole)
            self.assertEqual(fed, [12, 0, 9])
            first = [0, 3, 6, 7, 8, 9][stop]
            self.assertEqual(decoder.history[0][0], first)
            if stop > 0:
                keys, _ = decoder.restored[1]  # a layer that the trace leaves out
                self.assertEqual([len(rows) for rows in keys], [first * 4 * 4] * 2)
                tokens = PROMPT + fed
                want = Formula.number(1, 'keys', 1, first - 1, tokens[first - 1], 3)
                self.assertAlmostEqual(struct.unpack('<f', keys[1][-4:])[0], want, places=6)

    def test_another_plan_or_prompt_is_refused(self):
        with self.assertRaises(KeyboardInterrupt):
            self.capture(decoder=Formula(1))
        with self.assertRaisesRegex(CaptureError, 'window = 4, now 5'):
            self.capture(make_plan(window=5))
        with self.assertRaisesRegex(CaptureError, 'model = , now instruct'):
            self.capture(model='instruct')
        with self.assertRaisesRegex(CaptureError, 'another prompt'):
            drive.capture(Formula(), make_plan(), PROMPT[::-1], self.path / 'x', self.path / 'work', {'model': 'm'})
        self.capture()

    def test_a_spool_that_lost_bytes_is_refused(self):
        with self.assertRaises(KeyboardInterrupt):
            self.capture(decoder=Formula(2))
        torn = self.path / 'work' / 'layers.0.keys.bin'
        torn.write_bytes(torn.read_bytes()[:-1])
        with self.assertRaisesRegex(CaptureError, 'states 192'):  # 6 positions × 2 heads × 4 channels × 4 bytes
            self.capture()

    def test_a_choice_of_heads_gives_a_trace_of_a_model_with_these_heads(self):
        path, _ = self.capture(make_plan(kv_heads=(1,), hidden=True))
        shape, queries = self.numbers(path, 'layers.0.queries')
        self.assertEqual(shape, [2, 7, 4])
        self.assertAlmostEqual(queries[0], Formula.number(0, 'queries', 2, 3, PROMPT[3], 0), places=6)
        self.assertEqual(self.numbers(path, 'layers.2.hidden')[0], [7, 6])
        said = support.metadata(path)
        self.assertEqual((said['n_q_heads'], said['n_kv_heads'], said['kv_heads']), ('2', '1', '1'))
        self.assertTrue(support.check(path)['ok'])

    def test_a_continuation_is_fed(self):
        decoder = Formula()
        _, fed = self.capture(decoder=decoder, continuation=[4, 6, 8, 9])
        self.assertEqual(fed, [4, 6, 8])
        with self.assertRaisesRegex(CaptureError, '2 tokens for 3 decode steps'):
            self.capture(continuation=[4, 6])

    def test_a_layer_without_recorded_inputs_is_an_error(self):
        class Silent(Formula):
            def feed(self, tokens, begin, record):
                return super().feed(tokens, begin, lambda layer, block: record(layer, block) if layer != 1 else None)

        with self.assertRaisesRegex(CaptureError, r'layers \[1\]'):
            self.capture(decoder=Silent())


class Plans(unittest.TestCase):
    def test_ids_are_parsed(self):
        for text, want in (('all', (0, 1, 2, 3, 4, 5)), ('every:2', (0, 2, 4)), ('5,1', (1, 5)), ('1-3,5', (1, 2, 3, 5)),
                           ('0,-1', (0, 5)), ('1--1', (1, 2, 3, 4, 5)), ('-3--2', (3, 4))):
            self.assertEqual(plan.parse_ids('layers', text, 6), want)
        for text in ('', '6', '1-', 'x', 'every:0', 'every:', '-7', '3-9', '0,2-1', '-2--3'):
            with self.assertRaises(CaptureError, msg=text):
                plan.parse_ids('layers', text, 6)

    def test_blocks_and_captured_rows_cover_the_window(self):
        made = make_plan()
        self.assertEqual(list(made.blocks()), [(0, 3), (3, 6), (6, 7), (7, 8), (8, 9), (9, 10)])
        self.assertEqual(list(made.blocks(8)), [(8, 9), (9, 10)])
        # The window of 4 begins at position 3.
        self.assertEqual([list(made.captured_rows(*b)) for b in ((0, 3), (2, 5), (3, 6), (7, 8))], [[], [1, 2], [0, 1, 2], [0]])

    def test_impossible_plans_are_refused(self):
        for wrong in ({'layers': ()}, {'layers': (2, 0)}, {'layers': (3,)}, {'kv_heads': (2,)}, {'window': 8}, {'window': -1},
                      {'block': 0}, {'decode_steps': 0}, {'dtype': 'f8'}):
            with self.assertRaises(CaptureError, msg=str(wrong)):
                make_plan(**wrong)
        with self.assertRaises(CaptureError):
            plan.Shape(2, 6, 4, 8, 16, 1e4)


class Files(unittest.TestCase):
    def test_a_tensor_of_the_wrong_size_leaves_no_file(self):
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / 'x.safetensors'
            with self.assertRaisesRegex(CaptureError, 'a has 4 bytes, its shape 8'):
                safetensors_file.write(path, {}, [safetensors_file.Tensor('a', 'F32', (2,), [b'1234'])])
            self.assertFalse(path.exists())

    def test_files_that_are_not_safetensors_are_refused(self):
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / 'x'
            for data in (b'', b'short', struct.pack('<Q', 1 << 40), struct.pack('<Q', 4) + b'oops'):
                path.write_bytes(data)
                with self.assertRaises(CaptureError):
                    safetensors_file.read_header(path)

    def test_tokens_are_read_and_checked(self):
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / 'tokens.json'
            path.write_text('[1, 2, 3]')
            self.assertEqual(drive.read_tokens(path), [1, 2, 3])
            for text in ('', '{}', '[1, "2"]', '[-1]', '[1.5]', '[true]'):
                path.write_text(text)
                with self.assertRaises(CaptureError, msg=text):
                    drive.read_tokens(path)

    def test_targets_are_read_and_checked(self):
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / 'targets.json'
            path.write_text('[[1], [], [8]]')
            self.assertEqual(drive.read_targets(path, 3), [[1], [], [8]])
            for text in ('[[1], []]', '[1, 2, 3]', '[[1], [], [-1]]', '[[1], [], ["8"]]', '{}'):
                path.write_text(text)
                with self.assertRaises(CaptureError, msg=text):
                    drive.read_targets(path, 3)
        drive.check_targets([[7], [], [9]], 7)  # each step sees its own position
        with self.assertRaisesRegex(CaptureError, 'decode step 2 names 10, which is not a position in 0 .. 9'):
            drive.check_targets([[7], [], [1, 10]], 7)

    def test_the_command_exits_with_2_on_wrong_input(self):
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / 'targets.json'
            path.write_text('[[1]]')
            tokens = Path(folder) / 'tokens.json'
            tokens.write_text('[1, 2]')
            for arguments, complaint in ((['--tokens', '/nowhere/t.json'], '/nowhere/t.json: '),
                                         (['--prompt', '/nowhere/p.txt'], '/nowhere/p.txt: '),
                                         (['--tokens', str(tokens), '--targets', str(path)], 'targets.json: ')):
                said = io.StringIO()
                with contextlib.redirect_stderr(said):
                    code = command.main(['--model', '/nowhere/model', *arguments, '--out', '/nowhere/o'])
                self.assertEqual(code, 2)
                self.assertIn('kvcast_capture: ', said.getvalue())
                self.assertIn(complaint, said.getvalue())


if __name__ == '__main__':
    support.main()
