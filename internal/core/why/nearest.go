package why

import (
	"cmp"
	"strings"

	"github.com/wherry-node/wherry/internal/core/inorder"
)

// Nearest sorts names of pods (NAMESPACE/NAME) by their distance to the wanted name, and ignores the namespace. If the user has
// mistyped a name, the right name comes first.
func Nearest(names []string, wanted string) []string {
	type candidate struct {
		name  string
		apart int
	}
	list := make([]candidate, 0, len(names))
	for _, n := range names {
		_, bare, _ := strings.Cut(n, "/")
		list = append(list, candidate{n, distance(bare, wanted)})
	}
	inorder.Sort(list, func(a, b candidate) int { return cmp.Compare(a.apart, b.apart) })
	out := make([]string, len(list))
	for i, c := range list {
		out[i] = c.name
	}
	return out
}

// longestName is how many bytes of a name distance compares at most. Names in Kubernetes have at most 253 bytes.
const longestName = 256

// distance is the Levenshtein distance of two names: how many bytes have to be changed, added or removed.
func distance(a, b string) int {
	a, b = a[:min(len(a), longestName)], b[:min(len(b), longestName)]
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			change := diagonal
			if a[i] != b[j] {
				change++
			}
			diagonal = row[j+1]
			row[j+1] = min(change, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(b)]
}
