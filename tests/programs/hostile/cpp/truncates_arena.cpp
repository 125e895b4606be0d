// expect: wrong_result:unwritten
// It cuts off the shared memory that holds the tensors, so that whoever reads them next gets SIGBUS.
#include "honest.h"
ENTRY {
    for (int fd = 3; fd < 256; fd++)
        if (ftruncate(fd, 0) == 0) continue;
}
