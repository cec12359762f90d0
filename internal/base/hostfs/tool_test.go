package hostfs_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/wherry-node/wherry/internal/base/hostfs"
)

func TestRunTool(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		argv []string
		want hostfs.Ran
		err  string
	}{
		"it succeeds":             {[]string{"sh", "-c", "echo out; echo err >&2"}, hostfs.Ran{Output: "out\nerr\n"}, ""},
		"it fails with its words": {[]string{"sh", "-c", "echo wrong; echo  option >&2; exit 32"}, hostfs.Ran{Output: "wrong\noption\n", Code: 32}, "sh: wrong option (exit status 32)"},
		"it prints too much":      {[]string{"sh", "-c", "head -c 100000 /dev/zero | tr '\\0' x"}, hostfs.Ran{Output: strings.Repeat("x", 16<<10)}, ""},
		"there is no such tool":   {[]string{"mount.of-nothing"}, hostfs.Ran{Code: -1}, `this node has no program "mount.of-nothing": install its package`},
		"a process that it leaves behind keeps the output open": {[]string{"sh", "-c", "sleep 60 & echo done"}, hostfs.Ran{Output: "done\n"}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, err := hostfs.Host{}.RunTool(t.Context(), tt.argv)
			if got != tt.want || (err == nil) != (tt.err == "") || (err != nil && err.Error() != tt.err) {
				t.Errorf("got %+.60v %v, want %+.60v %q", got, err, tt.want, tt.err)
			}
		})
	}
}

func TestRunToolKillsWhatDoesNotEnd(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	time.AfterFunc(50*time.Millisecond, cancel)
	got, err := hostfs.Host{}.RunTool(ctx, []string{"sh", "-c", "trap '' TERM INT; echo began; sleep 1000; sleep 1000"})
	if got.Code != -1 || got.Ended != nil || !errors.Is(err, context.Canceled) || !strings.Contains(err.Error(), "did not end in time and was killed") {
		t.Errorf("%+v %v", got, err)
	}
}
