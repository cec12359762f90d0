package build

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	cdx "github.com/CycloneDX/cyclonedx-go"
)

// Builds of the same sources in two directories give the same program. It contains no path of the machine.
func TestTheBuildIsReproducible(t *testing.T) {
	t.Parallel()
	wherry := Targets()[0]
	var programs [][]byte
	for _, dir := range []string{"a", "another/directory"} {
		checkout := filepath.Join(t.TempDir(), dir)
		for name, text := range map[string]string{
			"go.mod":             "module example.org/small\n\ngo 1.26.0\n",
			"cmd/wherry/main.go": "package main\n\nimport \"fmt\"\n\nfunc main() { fmt.Println(\"hello\") }\n",
		} {
			path := filepath.Join(checkout, name)
			if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		bin := filepath.Join(checkout, "bin")
		if err := wherry.make(t.Context(), checkout, bin); err != nil {
			t.Fatal(err)
		}
		program, err := os.ReadFile(filepath.Join(bin, "wherry"))
		if err != nil {
			t.Fatal(err)
		}
		if bytes.Contains(program, []byte(checkout)) {
			t.Errorf("the program built in %s names the directory", checkout)
		}
		programs = append(programs, program)
	}
	if !bytes.Equal(programs[0], programs[1]) {
		t.Error("two builds of the same sources differ")
	}
}

// The bill of materials names each module of a program with its version, and the Go version that built the program.
func TestBillNamesEveryModule(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "wherry-dev")
	if out, err := exec.CommandContext(t.Context(), "go", "build", "-o", file, "../../cmd/wherry-dev").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	program, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	data, err := Bill(program)
	if err != nil {
		t.Fatal(err)
	}
	var bom cdx.BOM
	if err := cdx.NewBOMDecoder(bytes.NewReader(data), cdx.BOMFileFormatJSON).Decode(&bom); err != nil {
		t.Fatal(err)
	}
	names := map[string]string{}
	for _, c := range *bom.Components {
		names[c.Name] = c.Version
	}
	if !strings.HasPrefix(names["github.com/CycloneDX/cyclonedx-go"], "v") || !strings.HasPrefix(names["stdlib"], "1.") {
		t.Errorf("modules %v", names)
	}
	if again, err := Bill(program); err != nil || !bytes.Equal(data, again) {
		t.Errorf("a second bill of the same program differs (%v)", err)
	}
	if _, err := Bill([]byte("no program")); err == nil {
		t.Error("a bill was made of a file that is no program")
	}
}
