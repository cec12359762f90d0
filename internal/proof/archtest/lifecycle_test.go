package archtest

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// Each file and test that docs/lifecycle.md names exists.
func TestLifecycleNamesWhatExists(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile(filepath.Join(root, "docs", "lifecycle.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, table, _ := strings.Cut(string(text), "|---|")
	scopes, err := os.ReadFile(filepath.Join(root, dirOf(t, "decide"), "pods_test.go"))
	if err != nil {
		t.Fatal(err)
	}
	scripts := map[string]string{
		"decide": "internal/core/decide/testdata/decide", "podstatus": "internal/core/podstatus/testdata", "crispec": "internal/core/crispec/testdata/pods",
	}
	found := 0
	for _, m := range regexp.MustCompile("`([a-z]+)([./])([A-Za-z0-9-]+)`").FindAllStringSubmatch(table, -1) {
		found++
		pkg, name := m[1], m[3]
		switch {
		case m[2] == ".":
			if dir := packageDir(t, pkg); dir == "" || !declares(t, filepath.Join(root, dir), name) {
				t.Errorf("%s does not exist", m[0])
			}
		case pkg == "search":
			if !strings.Contains(string(scopes), `{name: "`+name+`",`) {
				t.Errorf("%s is not a pod of the search", m[0])
			}
		default:
			if _, err := os.Stat(filepath.Join(root, scripts[pkg], name+".txt")); scripts[pkg] == "" || err != nil {
				t.Errorf("%s is not a script: %v", m[0], err)
			}
		}
	}
	if found < 100 {
		t.Errorf("docs/lifecycle.md names only %d places: the pattern no longer finds them", found)
	}
	for _, row := range strings.Fields("C1 C7 D1 D2 D3 D4 D5 D6 D7 D8 D9 D11 D12 D13 D14 D16 D17 D18 D19 D20 D21 D22 D23 D24 D25 D26 D27 D28 F1 F2 F3") {
		if !strings.Contains(table, "\n| "+row+" |") {
			t.Errorf("docs/lifecycle.md has no row %s", row)
		}
	}
}

// Each script of package decide begins with a comment that states the rule which the script tests.
func TestScriptsSayWhatTheyPin(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob(filepath.Join(root, dirOf(t, "decide"), "testdata", "decide", "*.txt"))
	if err != nil || len(files) == 0 {
		t.Fatal(err, len(files))
	}
	for _, f := range files {
		text, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		if !strings.HasPrefix(string(text), "# ") {
			t.Errorf("%s does not begin with the rule that it pins", filepath.Base(f))
		}
	}
}
