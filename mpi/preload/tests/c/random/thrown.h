/* C++ exceptions for the random programs (thrown.cpp). Without a C++ compiler there are none. */
#ifndef THROWN_H
#define THROWN_H

#ifdef __cplusplus
extern "C" {
#endif

#ifdef HAVE_CPP
/* Throws an exception. */
int throws_error(void);
/* Makes a call and sets `code`, or returns 1 if it has thrown. */
int throw_caught(int (*call)(void *), void *arguments, int *code);
#else
static inline int throws_error(void) { return 0; }
static inline int throw_caught(int (*call)(void *), void *arguments, int *code) { return *code = call(arguments), 0; }
#endif

#ifdef __cplusplus
}
#endif

#endif
