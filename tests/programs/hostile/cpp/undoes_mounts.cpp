// expect: crashed:exit
// It tries to make the disk writable again, also with the rights of a new user namespace; exits where it cannot.
#include "honest.h"
#include <sys/mount.h>
ENTRY {
    for (int turn = 0; turn < 2; turn++) {
        mount(nullptr, "/", nullptr, MS_REMOUNT | MS_BIND, nullptr);
        umount2("/proc", MNT_DETACH);
        mount("more", "/tmp", "tmpfs", 0, nullptr);
        int file = open("/tmp/ksearch-undone", O_CREAT | O_WRONLY, 0600);
        if (file >= 0) {
            GEMM;
            return;
        }
        unshare(CLONE_NEWUSER | CLONE_NEWNS);
    }
    _exit(13);
}
