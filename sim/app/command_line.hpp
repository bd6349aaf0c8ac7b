// The command line of `kvcast`, with all its commands.
#pragma once

namespace kvcast::app {

// Runs the command that the arguments name, and returns the exit code. Errors of the command leave as exceptions.
int run_command_line(int argc, char** argv);

}  // namespace kvcast::app
