package config

import (
	"flag"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func wherryFile(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "wherry.yaml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

const wherryHead = "apiVersion: wherry.dev/v1alpha1\nkind: WherryConfiguration\n"

func TestWherryFile(t *testing.T) {
	t.Parallel()
	cfg, _, err := Load(nil)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(defaultWherry(), cfg.Wherry); diff != "" {
		t.Errorf("without a file (-want +got):\n%s", diff)
	}
	path := wherryFile(t, wherryHead+"server: {streamingByGet: AsUpstream, reviewQPS: 7.5}\ncontrolSocket: {enabled: true, path: c.sock}\n")
	cfg, _, err = Load([]string{"--wherry-config=" + path})
	if err != nil {
		t.Fatal(err)
	}
	want, on := defaultWherry(), true
	want.Server.StreamingByGet, want.Server.ReviewQPS = StreamingAsUpstream, 7.5
	want.ControlSocket = WherrySocketFile{Enabled: &on, Path: filepath.Join(filepath.Dir(path), "c.sock")}
	if diff := cmp.Diff(want, cfg.Wherry); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// The error for a bad file of --wherry-config names every problem, each with the path of its field. No field is ignored silently.
func TestWherryFileIsStrict(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"":                                    "the file is empty",
		"[]":                                  "not a map of fields",
		"kind: KubeletConfiguration":          "must be wherry.dev/v1alpha1 and WherryConfiguration",
		wherryHead + "server: {reviewQps: 1}": `:3: unknown field server.reviewQps (did you mean "server.reviewQPS"?)`,
		wherryHead + "server: {reviewQPS: 1}\nserver: {}":                 ":4: server: duplicate field, it is in line 3 already",
		wherryHead + "server: {reviewQPS: many}":                          `server.reviewQPS: expected a number, found the string "many"`,
		wherryHead + "server: {reviewQPS: 0}":                             ":3: server.reviewQPS: 0 must be above 0",
		wherryHead + "server: {streamingByGet: Never}":                    `server.streamingByGet: "Never" must be RequireCreate or AsUpstream`,
		wherryHead + "server: {maxWaitingReviews: -1}":                    "server.maxWaitingReviews: -1 must be from 1",
		wherryHead + "offlineStart: {enabled: true, maxAge: soon}":        `offlineStart.maxAge: "soon" must be a duration from 1m0s to 87600h0m0s`,
		wherryHead + "offlineStart: {enabled: true, after: 0s}":           `offlineStart.after: "0s" must be a duration`,
		wherryHead + "offlineStart: {enabled: true, maxSize: 1Ki}":        `offlineStart.maxSize: "1Ki" must be a quantity from 1Mi to 1Gi`,
		wherryHead + "offlineStart: {keyFile: /key}":                      "offlineStart.keyFile: has no effect",
		wherryHead + "controlSocket: {enabled: false, path: /run/x.sock}": "controlSocket.path: has no effect",
	} {
		if _, _, err := Load([]string{"--wherry-config=" + wherryFile(t, text)}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", text, err, want)
		}
	}
	if _, _, err := Load([]string{"--wherry-config=/absent/wherry.yaml"}); err == nil || !strings.Contains(err.Error(), "--wherry-config") {
		t.Errorf("no file: %v", err)
	}
}

// wherryFields documents every field of the file of --wherry-config, and nothing else.
func TestWherryFieldsAreDocumented(t *testing.T) {
	t.Parallel()
	var table []string
	for _, f := range wherryFields {
		table = append(table, f.path)
		if f.doc == "" {
			t.Errorf("%s has no description", f.path)
		}
	}
	slices.Sort(table)
	if diff := cmp.Diff(wherryPaths(), table); diff != "" {
		t.Errorf("fields of the type against the table (-type +table):\n%s", diff)
	}
}

// docs/wherry-config.md has the content that WherryDoc generates. With the flag -update, the test writes the file.
func TestWherryDoc(t *testing.T) {
	t.Parallel()
	path := filepath.Join("..", "..", "..", "docs", "wherry-config.md")
	if *update {
		if err := os.WriteFile(path, []byte(WherryDoc()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(WherryDoc(), string(got)); diff != "" {
		t.Errorf("run: go test ./internal/edge/config -run TestWherryDoc -update (-table +file):\n%s", diff)
	}
}

var update = flag.Bool("update", false, "write the files that are made from tables")

// wherryPaths returns the JSON paths of all fields of Wherry.
func wherryPaths() []string {
	var paths []string
	var walk func(t reflect.Type, prefix string)
	walk = func(t reflect.Type, prefix string) {
		for i := range t.NumField() {
			name, _, _ := strings.Cut(t.Field(i).Tag.Get("json"), ",")
			if t.Field(i).Type.Kind() == reflect.Struct {
				walk(t.Field(i).Type, prefix+name+".")
				continue
			}
			paths = append(paths, prefix+name)
		}
	}
	walk(reflect.TypeFor[Wherry](), "")
	return slices.Sorted(slices.Values(paths))
}
