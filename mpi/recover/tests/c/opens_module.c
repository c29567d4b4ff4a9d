/* Opens a module for itself alone, as Python does, and runs it. */
#include <dlfcn.h>
#include <stdio.h>

int main(int argc, char **argv) {
    void *module = dlopen(MODULE, RTLD_NOW | RTLD_LOCAL);
    if (!module) {
        fprintf(stderr, "%s\n", dlerror());
        return 1;
    }
    int (*run)(int, char **) = (int (*)(int, char **))dlsym(module, "module_main");
    return run ? run(argc, argv) : 1;
}
