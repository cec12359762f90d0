package archtest

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "rewrite docs/security.md")

// Each vulnerability in the tables of holes names tests that exist, or says why it needs none.
func TestEveryHoleHasItsTest(t *testing.T) {
	t.Parallel()
	cve := regexp.MustCompile(`CVE-\d{4}-\d+`)
	seen := map[string]bool{}
	for _, section := range [][]hole{nodeHoles, otherHoles, classes} {
		for _, h := range section {
			if h.what == "" || h.here == "" {
				t.Errorf("%s has no description, or does not describe how this node handles it", h.id)
			}
			for _, id := range cve.FindAllString(h.id, -1) {
				if seen[id] {
					t.Errorf("%s is in two rows", id)
				}
				seen[id] = true
			}
			for _, name := range h.tests {
				if !testExists(t, name) {
					t.Errorf("%s names %s, which is no test", h.id, name)
				}
			}
		}
	}
	for _, section := range [][]hole{nodeHoles, classes} {
		for _, h := range section {
			if len(h.tests) == 0 {
				t.Errorf("%s has no test", h.id)
			}
		}
	}
}

// testExists reports whether the test package.TestName exists. Of integration.TestName/"a subtest" it checks only the test.
func testExists(t *testing.T, name string) bool {
	t.Helper()
	pkg, test, ok := strings.Cut(name, ".")
	if !ok || !regexp.MustCompile(`^(Test|Fuzz)\w+$`).MatchString(test) {
		return false
	}
	dir := packageDir(t, pkg)
	return dir != "" && declaresTest(t, filepath.Join(root, dir), test)
}

// packageDir returns the directory of a package that a page names, relative to the root of the repository; "": there is none.
func packageDir(t *testing.T, pkg string) string {
	t.Helper()
	dirs := map[string]string{"integration": "test/integration", "crilog": "internal/edge/server/crilog", "agent": "agent", "wherry": "cmd/wherry", "tools": "tools"}
	if dir, ok := dirs[pkg]; ok {
		return dir
	}
	return dirOf(t, pkg)
}

// docs/security.md is equal to the page that is generated from the tables of vulnerabilities. `make golden` writes it anew.
func TestSecurityPage(t *testing.T) {
	t.Parallel()
	file := filepath.Join(root, "docs", "security.md")
	want := securityPage()
	if *update {
		if err := os.WriteFile(file, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if string(got) != want {
		t.Errorf("docs/security.md is not what its tables say: run make golden")
	}
}

func securityPage() string {
	var b strings.Builder
	b.WriteString(`# What a container, a tenant or a stranger cannot do to this node

This page is generated from the tables in ` + "`internal/proof/archtest`" + ` (` + "`make golden`" + ` writes it). A test checks that each test that it names exists, so no
row remains without its proof. ` + "`package.TestName`" + ` is a test in a package of ` + "`internal`" + `; ` + "`integration.TestName`" + ` runs on a real API server and a real
containerd. [SECURITY.md](../SECURITY.md) says how to report a vulnerability, and what we promise.

## Who is trusted

- **The node's administrator** is trusted, and so are the flags, configuration files, static pod manifests and certificates that the administrator writes.
- **The API server** is trusted to say which pods run on this node and what their specs are. Tenants write its objects, so the
  agent bounds their contents like any other input.
- **The container runtime** is trusted to do what the agent requests. The agent bounds its answers, because containers write parts of them.
- **Containers** are not trusted. They write their files, logs, volumes, termination messages and answers to probes.
- **Tenants** are not trusted. They write pod specs, annotations and labels. No annotation gives a pod of the API a right.
- **Strangers** who reach the node's port are not trusted. Until a client is authenticated, its requests cost a bounded amount of the node's resources.

## Classes

Reviews of the code looked for these classes of attacks. One mechanism stops each whole class.

`)
	table(&b, "class", classes)
	b.WriteString("\n## Published vulnerabilities of a node's agent\n\n")
	table(&b, "CVE or issue", nodeHoles)
	b.WriteString("\n## Published vulnerabilities of other components\n\nA node agent cannot have them; the last column says why.\n\n| CVE | what it is | why it cannot apply |\n|---|---|---|\n")
	for _, h := range otherHoles {
		fmt.Fprintf(&b, "| %s | %s | %s |\n", h.id, h.what, h.here)
	}
	return b.String()
}

func table(b *strings.Builder, first string, rows []hole) {
	fmt.Fprintf(b, "| %s | the attack | here | tests |\n|---|---|---|---|\n", first)
	for _, h := range rows {
		fmt.Fprintf(b, "| %s | %s | %s | `%s` |\n", h.id, h.what, h.here, strings.Join(h.tests, "` `"))
	}
}
