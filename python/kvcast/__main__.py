"""The command `kvcast`: the program of the wheel, or of the build folder."""

import os
import pathlib
import sys


def main():
    here = pathlib.Path(__file__).parent
    for program in (here / 'bin' / 'kvcast', here.parent.parent / 'kvcast'):
        if program.is_file():
            os.execv(program, ['kvcast', *sys.argv[1:]])
    sys.exit('kvcast: the program lies neither in the package nor in a build folder around it')


if __name__ == '__main__':
    main()
