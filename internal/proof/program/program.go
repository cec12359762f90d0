package program

import (
	"os"
	"syscall"
	"testing"
)

// Write writes an executable file. With os.WriteFile, running the file would sometimes fail with "text file busy": a process that a
// parallel test starts at that moment inherits the open file, and Linux does not run a file that is open for writing. Write makes sure that
// no process of the test starts before the file is closed.
func Write(t testing.TB, path string, content []byte) {
	t.Helper()
	syscall.ForkLock.RLock()
	err := os.WriteFile(path, content, 0o755) //nolint:gosec // a program, which other users may run
	syscall.ForkLock.RUnlock()
	if err != nil {
		t.Fatal(err)
	}
}
