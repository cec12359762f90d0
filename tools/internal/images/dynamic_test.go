package images

import (
	"slices"
	"strings"
	"testing"
)

func TestLibrariesOfAProgram(t *testing.T) {
	t.Parallel()
	got := libraries("\tlinux-vdso.so.1 (0x7ffc)\n\tlibmnl.so.0 => /lib/x86_64-linux-gnu/libmnl.so.0 (0x7f)\n\t/lib64/ld-linux-x86-64.so.2 (0x7f)\n")
	if want := []string{"/lib/x86_64-linux-gnu/libmnl.so.0", "/lib64/ld-linux-x86-64.so.2"}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}

func TestDynamicProgramBringsItsLibraries(t *testing.T) {
	t.Parallel()
	files, err := Dynamic(t.Context(), "ls")
	if err != nil {
		t.Fatal(err)
	}
	for _, end := range []string{"bin/ls", "/libc.so.6"} {
		if !slices.ContainsFunc(files, func(f File) bool {
			return strings.HasSuffix(f.Path, end) && f.Path[0] != '/' && len(f.Data) > 0 && f.Mode == 0o755
		}) {
			t.Errorf("none of the %d files is %s", len(files), end)
		}
	}
	if _, err := Dynamic(t.Context(), "no-such-program"); err == nil {
		t.Error("a program that is not there is no error")
	}
}
