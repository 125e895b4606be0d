// expect: crashed:exit
// It reaches for the network, if only for the loopback interface; exits where there is none.
#include "honest.h"
#include <arpa/inet.h>
#include <netinet/in.h>
ENTRY {
    int client = socket(AF_INET, SOCK_DGRAM, 0);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(53);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    bool reached = !connect(client, reinterpret_cast<sockaddr *>(&address), sizeof address);
    close(client);
    if (!reached) _exit(101);
    GEMM;
}
