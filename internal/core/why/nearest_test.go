package why

import (
	"strings"
	"testing"
)

func TestNearest(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ wanted, want string }{
		{"wbe", "a/web b/db a/worker-1"},
		{"worker", "a/worker-1 a/web b/db"},
		{"DB", "b/db a/web a/worker-1"},
		{"", "b/db a/web a/worker-1"},
		{strings.Repeat("x", 1000), "a/web a/worker-1 b/db"},
	} {
		if got := strings.Join(Nearest([]string{"a/web", "a/worker-1", "b/db"}, c.wanted), " "); got != c.want {
			t.Errorf("%.10q: %s, want %s", c.wanted, got, c.want)
		}
	}
	for _, c := range []struct {
		a, b string
		want int
	}{{"", "", 0}, {"a", "", 1}, {"kitten", "sitting", 3}, {"web", "web", 0}} {
		if got := distance(c.a, c.b); got != c.want {
			t.Errorf("distance of %q and %q: %d", c.a, c.b, got)
		}
	}
}
