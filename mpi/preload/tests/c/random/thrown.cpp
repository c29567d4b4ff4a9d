/* A C++ exception that an error handler throws through MPI's frames and those of a library. */
#include "thrown.h"

#include <stdexcept>

int throws_error() { throw std::runtime_error("MPI"); }

int throw_caught(int (*call)(void *), void *arguments, int *code) {
    try {
        *code = call(arguments);
        return 0;
    } catch (const std::runtime_error &) {
        return 1;
    }
}
