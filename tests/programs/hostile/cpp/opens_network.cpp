// expect: crashed:exit
// It connects to a port of this machine that listens everywhere else; exits where there is no network.
#include "honest.h"
#include <arpa/inet.h>
#include <netinet/in.h>
ENTRY {
    int server = socket(AF_INET, SOCK_STREAM, 0), client = socket(AF_INET, SOCK_DGRAM, 0);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(53);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    bool reached = !connect(client, reinterpret_cast<sockaddr *>(&address), sizeof address);
    close(server);
    close(client);
    if (!reached) _exit(101);
    GEMM;
}
