/* A stand-in for a CUDA program: it connects to the MPS daemon of its environment and prints the limits it is told. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

int main(void) {
    static const char *names[] = {"CUDA_MPS_ACTIVE_THREAD_PERCENTAGE", "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT",
                                  "CUDA_MPS_SM_PARTITION"};
    const char *pipe = getenv("CUDA_MPS_PIPE_DIRECTORY");
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    char line[1024] = "client";
    int connection = socket(AF_UNIX, SOCK_STREAM, 0);
    ssize_t length;
    unsigned n;
    if (!pipe) return puts("LIMIT=no daemon"), 1;
    snprintf(address.sun_path, sizeof address.sun_path, "%s/control", pipe);
    for (n = 0; n < 3; n++)
        if (getenv(names[n])) {
            strcat(strcat(line, " "), names[n]);
            strcat(strcat(line, "="), getenv(names[n]));
        }
    strcat(line, "\n");
    if (connect(connection, (struct sockaddr *)&address, sizeof address)) return perror("LIMIT=connect"), 1;
    if (write(connection, line, strlen(line)) < 0) return perror("LIMIT=write"), 1;
    length = read(connection, line, sizeof line - 1);
    if (length < 0) return perror("LIMIT=read"), 1;
    line[length] = 0;
    printf("LIMIT=%s", line);
    printf("USER_ID=%d\n", (int)getuid());
    fflush(stdout);
    pause(); /* as a program that computes */
    return 0;
}
