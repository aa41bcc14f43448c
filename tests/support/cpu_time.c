/* cpu_time BUILD NAME PROGRAM ARGUMENT...: runs the program, and adds a line "BUILD NAME SECONDS" to the file
 * cpp.cpu in the folder POLYPATH_TEST_CPU: the CPU seconds, user and system, of the program and of all
 * children that it waited for. Without that variable it becomes the program. It ends as the program
 * ends; the program is killed when it is. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

static double seconds(struct timeval time) {
  return (double)time.tv_sec + (double)time.tv_usec / 1e6;
}

static void write_down(const char* folder, const char* build, const char* name,
                       const struct rusage* used) {
  char path[4096];
  snprintf(path, sizeof path, "%s/cpp.cpu", folder);
  const int file = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
  if (file < 0) return;
  char line[1024];
  const int length = snprintf(line, sizeof line, "%s %s %.2f\n", build, name,
                              seconds(used->ru_utime) + seconds(used->ru_stime));
  /* One write: lines of tests that end at once do not mix. */
  if (length > 0 && write(file, line, (size_t)length) < 0)
    fprintf(stderr, "cpu_time: %s\n", strerror(errno));
  close(file);
}

int main(int count, char** arguments) {
  if (count < 4) {
    fprintf(stderr, "usage: cpu_time BUILD NAME PROGRAM ARGUMENT...\n");
    return 2;
  }
  const char* const folder = getenv("POLYPATH_TEST_CPU");
  const pid_t program = folder == NULL ? 0 : fork();
  if (program < 0) {
    perror("cpu_time: fork");
    return 2;
  }
  if (program == 0) {
    if (folder != NULL) prctl(PR_SET_PDEATHSIG, SIGKILL);
    execvp(arguments[3], arguments + 3);
    perror(arguments[3]);
    _exit(127);
  }
  signal(SIGINT, SIG_IGN); /* the program answers it, and so ends both */
  int status = 0;
  struct rusage used;
  while (wait4(program, &status, 0, &used) < 0 && errno == EINTR) continue;
  write_down(folder, arguments[1], arguments[2], &used);
  if (WIFSIGNALED(status)) {
    signal(WTERMSIG(status), SIG_DFL);
    kill(getpid(), WTERMSIG(status));
  }
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128;
}
