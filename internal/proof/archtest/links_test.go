package archtest

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// mdLink matches the target of a Markdown link.
var mdLink = regexp.MustCompile(`\]\(([^)\s]+)\)`)

// mdCode matches Markdown code, in which there are no links.
var mdCode = regexp.MustCompile("`[^`\n]*`")

// pages returns the paths of the documentation pages, relative to the root of the repository.
func pages(t *testing.T) []string {
	t.Helper()
	var out []string
	for _, pattern := range []string{"*.md", "docs/*.md", "deploy/*.md", "conformance/*.md", "bench/*.md"} {
		found, err := filepath.Glob(filepath.Join(root, pattern))
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, found...)
	}
	return out
}

// Each link in a page leads to an existing file and, if it names a heading, to an existing heading.
func TestLinksOfPages(t *testing.T) {
	t.Parallel()
	checked := 0
	for _, page := range pages(t) {
		text := string(readFile(t, page))
		for _, m := range mdLink.FindAllStringSubmatch(mdCode.ReplaceAllString(text, "code"), -1) {
			if strings.Contains(m[1], "://") {
				continue
			}
			checked++
			if why := brokenLink(t, page, m[1]); why != "" {
				t.Errorf("%s: (%s): %s", page, m[1], why)
			}
		}
	}
	if checked < 60 {
		t.Errorf("only %d links were found: the pattern no longer finds them", checked)
	}
}

// brokenLink describes what is wrong with a link from a page to target; "": the link is correct.
func brokenLink(t *testing.T, page, target string) string {
	t.Helper()
	path, heading, anchored := strings.Cut(target, "#")
	to := page
	if path != "" {
		to = filepath.Join(filepath.Dir(page), path)
	}
	if _, err := os.Stat(to); err != nil {
		return err.Error()
	}
	if anchored && !slices.Contains(headings(string(readFile(t, to))), heading) {
		return "no such heading"
	}
	return ""
}

// headings returns the anchors of the headings in a page, as GitHub makes them.
func headings(text string) []string {
	var out []string
	for line := range strings.Lines(text) {
		if !strings.HasPrefix(line, "#") {
			continue
		}
		title := strings.ToLower(strings.TrimSpace(strings.TrimLeft(line, "#")))
		out = append(out, strings.Map(func(r rune) rune {
			switch {
			case r == ' ':
				return '-'
			case r >= 'a' && r <= 'z', r >= '0' && r <= '9', r == '-', r == '_':
				return r
			}
			return -1
		}, title))
	}
	return out
}

func readFile(t *testing.T, path string) []byte {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// docs/README.md, the index, links to every page of the directory docs.
func TestIndexOfPages(t *testing.T) {
	t.Parallel()
	index := string(readFile(t, filepath.Join(root, "docs", "README.md")))
	found, err := filepath.Glob(filepath.Join(root, "docs", "*.md"))
	if err != nil {
		t.Fatal(err)
	}
	for _, page := range found {
		if name := filepath.Base(page); name != "README.md" && !strings.Contains(index, "("+name+")") {
			t.Errorf("docs/README.md does not name %s", name)
		}
	}
}

// The function brokenLink reports a missing file and a missing heading.
func TestBrokenLinksAreFound(t *testing.T) {
	t.Parallel()
	page := filepath.Join(t.TempDir(), "a.md")
	if err := os.WriteFile(page, []byte("# One thing\n\n## To change X, open Y\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for target, broken := range map[string]bool{
		"a.md": false, "#one-thing": false, "a.md#to-change-x-open-y": false, "b.md": true, "#two": true, "a.md#two": true,
	} {
		if got := brokenLink(t, page, target) != ""; got != broken {
			t.Errorf("(%s) is broken: %t, want %t", target, got, broken)
		}
	}
}

// Each test that a page names as package.TestName exists. Two pages have checks of their own and are left out here, and so are placeholders
// for names.
func TestTestsThatPagesName(t *testing.T) {
	t.Parallel()
	named := regexp.MustCompile("`(\\w+\\.(?:Test|Fuzz)\\w+)`")
	for _, page := range pages(t) {
		if name := filepath.Base(page); name == "lifecycle.md" || name == "security.md" {
			continue
		}
		for _, m := range named.FindAllStringSubmatch(string(readFile(t, page)), -1) {
			if !testExists(t, m[1]) {
				t.Errorf("%s names %s, which is no test", page, m[1])
			}
		}
	}
}

// Each file that CONTRIBUTING.md names exists, except the files that its examples tell the reader to create.
func TestPathsOfContributing(t *testing.T) {
	t.Parallel()
	written := []string{"internal/edge/volume/flocker.go", "internal/edge/volume/flocker_test.go",
		"internal/core/decide/testdata/decide/back-off-begins-anew-after-five-minutes.txt"}
	path := regexp.MustCompile("`((?:internal|docs|test|cmd|agent)/[\\w./-]+)`")
	n := 0
	for _, m := range path.FindAllStringSubmatch(string(readFile(t, filepath.Join(root, "CONTRIBUTING.md"))), -1) {
		n++
		_, err := os.Stat(filepath.Join(root, m[1]))
		if fresh := slices.Contains(written, m[1]); fresh == (err == nil) {
			t.Errorf("CONTRIBUTING.md names %s: is there: %t, to be written: %t", m[1], err == nil, fresh)
		}
	}
	if n < 15 {
		t.Errorf("CONTRIBUTING.md names %d files only", n)
	}
}
