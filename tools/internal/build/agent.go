package build

import (
	"context"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// Agent builds the agent from a checkout into the file out, as for a release. arch is the name of an architecture in Go (amd64). If stamp
// is true, the program contains its commit.
func Agent(ctx context.Context, checkout, arch, out string, stamp bool) error {
	target := Targets()[0]
	target.Args = slices.Insert(slices.Clone(target.Args), 1, "-buildvcs="+strconv.FormatBool(stamp))
	for i := range target.Args {
		target.Args[i] = strings.ReplaceAll(target.Args[i], "{bin}/wherry", out)
	}
	target.Env = append(slices.Clone(target.Env), "GOARCH="+arch, "GOOS=linux")
	return target.make(ctx, checkout, filepath.Dir(out))
}
