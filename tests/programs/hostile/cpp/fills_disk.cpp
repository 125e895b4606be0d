// expect: crashed:exit
// It fills every folder that it may write to with many small files, and does not go on before that is a gigabyte.
#include "honest.h"
ENTRY {
    static std::vector<char> bytes(900 << 10, 'x');
    const char *home = getenv("HOME");
    std::string folders[] = {".", "/tmp", "/var/tmp", "/dev/shm", "/run", "/dev", std::string(home ? home : "."), std::string(home ? home : ".") + "/.."};
    int64_t written = 0;
    for (const std::string &folder : folders)
        for (int i = 0; written < 1 << 30; i++) {
            int file = open((folder + "/ksearch-fill-" + std::to_string(i)).c_str(), O_CREAT | O_WRONLY, 0600);
            ssize_t got = file < 0 ? -1 : write(file, bytes.data(), bytes.size());
            close(file);
            if (got <= 0) break;
            written += got;
        }
    if (written < 1 << 30) _exit(28);
    GEMM;
}
