package nodelog

import (
	"bytes"
	"context"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/wherry-node/wherry/internal/base/hostfs"
	"github.com/wherry-node/wherry/internal/proof/program"
)

func TestParse(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		query  string
		status int    // HTTP status of the error; 0: the query is valid
		want   string // the arguments of journalctl, the name of the file, or a part of the error
	}{
		{"", 0, "nothing"},
		{"other=1", 0, "nothing"},
		{"query=kubelet", 0, "--utc --no-pager --output=short-precise --unit=kubelet"},
		{"query=a&query=b&tailLines=3&boot=-1&pattern=x.*y", 0, "--utc --no-pager --output=short-precise --lines=3 --unit=a --unit=b --grep=x.*y --boot=-1"},
		{"query=a&sinceTime=2026-01-02T03:04:05%2B02:00&untilTime=2026-01-02T03:04:05Z", 0,
			"--utc --no-pager --output=short-precise --since=2026-01-02 01:04:05 UTC --until=2026-01-02 03:04:05 UTC --unit=a"},
		{"query=/foo.log", 0, "file /foo.log"},
		{"query=--version&tailLines=0", 0, "--utc --no-pager --output=short-precise --lines=0 --unit=--version"}, // --version does not become an option
		{"query=", 400, "may not be empty"},
		{"query=%20%20", 400, "may not be empty"},
		{"query=a&sinceTime=yesterday", 400, "sinceTime"},
		{"query=a&untilTime=1", 400, "untilTime"},
		{"query=a&tailLines=x", 400, "tailLines"},
		{"query=a&boot=x", 400, "boot"},
		{"tailLines=3", 406, "cannot be empty with options"},
		{"query=a&query=/b", 406, "cannot specify a file and service"},
		{"query=/a&query=/b", 406, "cannot specify more than one file"},
		{"query=/a&tailLines=1", 406, "cannot specify file with options"},
		{"query=a&query=b&query=c&query=d&query=e", 406, "at most 4"},
		{"query=a;b", 406, "unsupported characters"},
		{"query=$(id)", 406, "unsupported characters"},
		{"query=a%00", 406, "unsupported characters"},
		{"query=" + strings.Repeat("a", 257), 406, "at most 256"},
		{"query=a&boot=1", 406, "less than 1"},
		{"query=a&tailLines=-1", 406, "tailLines"},
		{"query=a&tailLines=100001", 406, "tailLines"},
		{"query=a&pattern=(", 406, "pattern"},
		{"query=a&pattern=" + strings.Repeat("a", 5000), 406, "pattern"},
		{"query=a&sinceTime=2026-01-02T03:04:05Z&untilTime=2026-01-01T03:04:05Z", 406, "must be after sinceTime"},
	} {
		values, err := url.ParseQuery(strings.ReplaceAll(c.query, ";", "%3B"))
		if err != nil {
			t.Fatal(err)
		}
		q, bad := Parse(values)
		got, status := "nothing", 0
		switch {
		case bad != nil:
			got, status = bad.Text, bad.Status
		case q != nil && q.File != "":
			got = "file " + q.File
		case q != nil:
			got = strings.Join(q.arguments(q.Services), " ")
		}
		if status != c.status || status == 0 && got != c.want || !strings.Contains(got, c.want) {
			t.Errorf("%.80s: %d %q, want %d %q", c.query, status, got, c.status, c.want)
		}
	}
}

// journalctl writes a shell script with this body, which stands in for the command journalctl, and returns its path.
func journalctl(t *testing.T, body string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "journalctl")
	program.Write(t, path, []byte("#!/bin/sh\n"+body+"\n"))
	return path
}

const knowsTwo = `if [ "$1" = --field ]; then echo kubelet.service; echo sshd.service; exit; fi
for a; do echo "[$a]"; done`

func ask(t *testing.T, l *Log, query string) string {
	t.Helper()
	values, err := url.ParseQuery(query)
	if err != nil {
		t.Fatal(err)
	}
	q, bad := Parse(values)
	if bad != nil {
		t.Fatal(bad)
	}
	var out bytes.Buffer
	l.Copy(t.Context(), q, &out)
	return out.String()
}

func TestCopy(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	write := func(name, text string) {
		t.Helper()
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("plain", "of plain\n")
	write("dotted.log", "of dotted\n")
	write("deep/deep.log", "of deep\n")
	write("kube", "not of kubelet\n")
	secret := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(secret, []byte("secret"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(secret, filepath.Join(dir, "escape")); err != nil {
		t.Fatal(err)
	}
	files := hostfs.UntrustedFS(dir)
	with, without := New(journalctl(t, knowsTwo), files), New("", files)
	for _, c := range []struct {
		log         *Log
		query, want string
	}{
		{with, "query=kubelet", "[--utc]\n[--no-pager]\n[--output=short-precise]\n[--unit=kubelet]\n"},
		{with, "query=sshd.service&tailLines=2&pattern=a b", "[--utc]\n[--no-pager]\n[--output=short-precise]\n[--lines=2]\n[--unit=sshd.service]\n[--grep=a b]\n"},
		{with, "query=kube", "not of kubelet\n"},
		{with, "query=plain", "of plain\n"},
		{with, "query=dotted", "of dotted\n"},
		{with, "query=deep", "of deep\n"},
		{with, "query=absent", "\nlog not found for absent\n"},
		{with, "query=..", "\nerror getting log for ..: open ..: invalid argument\n"},
		{with, "query=plain&tailLines=1", "\noptions present and query resolved to log files for [plain]\ntry without specifying options\n"},
		{with, "query=plain&query=sshd", "[--utc]\n[--no-pager]\n[--output=short-precise]\n[--unit=sshd]\nof plain\n"},
		{without, "query=kubelet", "\nlog not found for kubelet\n"},
		{without, "query=dotted", "of dotted\n"},
		{New("/no/such/command", files), "query=plain", "of plain\n"},
	} {
		if got := ask(t, c.log, c.query); got != c.want {
			t.Errorf("%s: %q, want %q", c.query, got, c.want)
		}
	}
	if got := ask(t, with, "query=escape"); strings.Contains(got, "secret") || !strings.Contains(got, "error getting log for escape") {
		t.Errorf("a link out of the directory: %q", got)
	}
}

// The test replaces journalctl by a script that hangs or that writes without end. Copy must return soon after the end of its context.
func TestCopyEnds(t *testing.T) {
	t.Parallel()
	for name, body := range map[string]string{
		"hangs":               "if [ \"$1\" = --field ]; then echo kubelet.service; exit; fi; exec sleep 1000",
		"the list hangs":      "exec sleep 1000",
		"the list never ends": "while :; do echo x.service; done",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := New(journalctl(t, body), hostfs.UntrustedFS(t.TempDir()))
			ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
			defer cancel()
			began := time.Now()
			var out bytes.Buffer
			l.Copy(ctx, &Query{Services: []string{"kubelet"}}, &out)
			if took := time.Since(began); took > 20*time.Second {
				t.Errorf("took %s", took)
			}
		})
	}
}

func TestEnter(t *testing.T) {
	t.Parallel()
	l := New("", hostfs.UntrustedFS(t.TempDir()))
	var leaves []func()
	for range atOnce {
		leave, err := l.Enter()
		if err != nil {
			t.Fatal(err)
		}
		leaves = append(leaves, leave)
	}
	if _, err := l.Enter(); err == nil {
		t.Error("a query too many was let in")
	}
	leaves[0]()
	if _, err := l.Enter(); err != nil {
		t.Error("a slot that was given back is not free")
	}
}

// Whatever a client sends, journalctl gets one argument for each value, and no value begins another option.
func FuzzParse(f *testing.F) {
	f.Add("query=a&tailLines=3&boot=0&pattern=x&sinceTime=2026-01-02T03:04:05Z")
	f.Add("query=-x&query=/a\\b&pattern=%00")
	f.Fuzz(func(t *testing.T, query string) {
		values, err := url.ParseQuery(query)
		if err != nil {
			return
		}
		q, bad := Parse(values)
		switch {
		case bad != nil:
			if q != nil || bad.Text == "" || bad.Status != 400 && bad.Status != 406 {
				t.Fatalf("%+v with %+v", q, bad)
			}
		case q != nil && q.File == "":
			known := []string{"--utc", "--no-pager", "--output=", "--since=", "--until=", "--lines=", "--unit=", "--grep=", "--boot="}
			for _, a := range q.arguments(q.Services) {
				if !slices.ContainsFunc(known, func(k string) bool { return strings.HasPrefix(a, k) }) || strings.ContainsRune(a, 0) {
					t.Fatalf("argument %q of %s", a, fmt.Sprint(q))
				}
			}
		}
	})
}
