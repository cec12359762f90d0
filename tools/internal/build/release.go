package build

import (
	"bytes"
	"context"
	"crypto/sha256"
	"debug/buildinfo"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	cdx "github.com/CycloneDX/cyclonedx-go"
)

// Release writes into dist/: the agent, built from the checked-out commit, its bill of materials, and checksums. It builds the agent twice,
// in clones in two directories, and fails if the results differ. So anyone who builds this commit with the same Go version gets the same
// program.
func Release(ctx context.Context, checkout string, progress io.Writer) error {
	out, err := git(ctx, checkout, "status", "--porcelain")
	if err != nil {
		return err
	}
	if out != "" {
		return fmt.Errorf("a release needs a clean checkout: commit or remove these changes:\n%s", out)
	}
	scratch, err := os.MkdirTemp("", "wherry-release")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(scratch) }()
	var programs [][]byte
	for i, dir := range []string{"a", "another/directory"} {
		clone := filepath.Join(scratch, dir)
		if _, err := git(ctx, checkout, "clone", "-q", "--shared", checkout, clone); err != nil {
			return err
		}
		fmt.Fprintf(progress, "build %d of 2\n", i+1)
		target := Targets()[0]
		target.Args = slices.Insert(slices.Clone(target.Args), 1, "-buildvcs=true") // independent of the machine's Go settings
		if i > 0 {                                                                  // the second build must not reuse packages that the first one compiled
			target.Env = append(slices.Clone(target.Env), "GOCACHE="+filepath.Join(scratch, "cache"))
		}
		if err := target.make(ctx, clone, filepath.Join(clone, "bin")); err != nil {
			return fmt.Errorf("build %s: %w", target.Name, err)
		}
		program, err := os.ReadFile(filepath.Join(clone, "bin", "wherry"))
		if err != nil {
			return err
		}
		programs = append(programs, program)
	}
	if !bytes.Equal(programs[0], programs[1]) {
		return fmt.Errorf("two builds of one commit differ: sha256 %x, %x", sha256.Sum256(programs[0]), sha256.Sum256(programs[1]))
	}
	return writeRelease(filepath.Join(checkout, "dist"), programs[0], progress)
}

func writeRelease(dist string, program []byte, progress io.Writer) error {
	bill, err := Bill(program)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(dist, 0o755); err != nil {
		return err
	}
	var sums strings.Builder
	for _, f := range []struct {
		name string
		data []byte
		mode os.FileMode
	}{{"wherry", program, 0o755}, {"wherry.cdx.json", bill, 0o644}} {
		if err := os.WriteFile(filepath.Join(dist, f.name), f.data, f.mode); err != nil {
			return err
		}
		fmt.Fprintf(&sums, "%x  %s\n", sha256.Sum256(f.data), f.name)
	}
	fmt.Fprintf(progress, "two builds agree; in %s:\n%s", dist, sums.String())
	return os.WriteFile(filepath.Join(dist, "SHA256SUMS"), []byte(sums.String()), 0o644)
}

// Bill returns the bill of materials of a Go program in the format CycloneDX: the modules that the Go toolchain recorded in the program,
// and the standard library. It contains no time and no serial number, so the same program always has the same bill.
func Bill(program []byte) ([]byte, error) {
	info, err := buildinfo.Read(bytes.NewReader(program))
	if err != nil {
		return nil, fmt.Errorf("read the modules of the program: %w", err)
	}
	bom := cdx.NewBOM()
	main := cdx.Component{Type: cdx.ComponentTypeApplication, BOMRef: info.Main.Path, Name: info.Main.Path, Version: info.Main.Version}
	bom.Metadata = &cdx.Metadata{Component: &main}
	components := []cdx.Component{module("stdlib", strings.TrimPrefix(info.GoVersion, "go"))}
	for _, m := range info.Deps {
		if m.Replace != nil {
			m = m.Replace
		}
		components = append(components, module(m.Path, m.Version))
	}
	slices.SortFunc(components, func(a, b cdx.Component) int { return strings.Compare(a.BOMRef, b.BOMRef) })
	bom.Components = &components
	var out bytes.Buffer
	if err := cdx.NewBOMEncoder(&out, cdx.BOMFileFormatJSON).SetPretty(true).Encode(bom); err != nil {
		return nil, fmt.Errorf("write the bill of materials: %w", err)
	}
	return out.Bytes(), nil
}

func module(path, version string) cdx.Component {
	url := "pkg:golang/" + path + "@" + version
	return cdx.Component{Type: cdx.ComponentTypeLibrary, BOMRef: url, Name: path, Version: version, PackageURL: url}
}

func git(ctx context.Context, dir string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, "git", args...)
	cmd.Dir = dir
	out, err := cmd.CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("git %s: %w\n%s", strings.Join(args, " "), err, bytes.TrimSpace(out))
	}
	return string(out), nil
}
