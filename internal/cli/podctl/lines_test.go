package podctl

import (
	"bytes"
	"strings"
	"testing"
)

// If a container never ends its line, the command keeps only a part of the line in memory, and prints every byte.
func TestLongLines(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("x", 3*longestLine+100)
	for _, c := range []struct{ name, prefix, in, want string }{
		{"with a prefix", "[c] ", "a\n\nb", "[c] a\n[c] \n[c] b\n"},
		{"without a prefix", "", "a\n\nb", "a\n\nb"},
		{"long, without a prefix", "", long + "\nend", long + "\nend"},
		{"long, with a prefix", "[c] ", long + "\nend", strings.Repeat("[c] "+long[:longestLine]+"\n", 3) + "[c] " + long[:100] + "\n[c] end\n"},
	} {
		var out bytes.Buffer
		most := &largest{Buffer: &out}
		if err := newLineWriter(most).copy(c.prefix, strings.NewReader(c.in)); err != nil {
			t.Fatal(c.name, err)
		}
		if out.String() != c.want {
			t.Errorf("%s: %d bytes, want %d", c.name, out.Len(), len(c.want))
		}
		if limit := longestLine + len(c.prefix) + 1; most.size > limit {
			t.Errorf("%s: %d bytes in one piece, more than %d", c.name, most.size, limit)
		}
	}
}

// largest is a buffer that keeps the size of the largest write.
type largest struct {
	*bytes.Buffer
	size int
}

func (l *largest) Write(b []byte) (int, error) {
	l.size = max(l.size, len(b))
	return l.Buffer.Write(b)
}

func (l *largest) WriteString(s string) (int, error) { return l.Write([]byte(s)) }
