package main

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/wherry-node/wherry/agent/fleet"
	"github.com/wherry-node/wherry/agent/simulated"
	"github.com/wherry-node/wherry/internal/edge/config"
	"github.com/wherry-node/wherry/internal/edge/criproxy"
)

// shownFile matches a file of YAML in a page: a block between fences, or one that is indented. It has to begin with its apiVersion.
var shownFile = regexp.MustCompile("(?m)^```yaml\n(?:#.*\n)?(apiVersion: [^`]*)^```|^( {4}apiVersion: .*\n(?: {4}.*\n)+)")

// Each file of YAML that a page shows is one that Wherry accepts, and so is each scenario of the examples.
func TestFilesOfPages(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	load := func(flag, text string) error {
		file := filepath.Join(dir, "file.yaml")
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			return err
		}
		_, _, err := config.Load([]string{flag, file})
		return err
	}
	accept := map[string]func(page, text string) error{
		"FleetTemplate": func(page, text string) error {
			_, err := fleet.ParseTemplate(page, []byte(text))
			return err
		},
		"FleetScenario": func(page, text string) error {
			if filepath.Base(page) == "cri-proxy.md" {
				_, err := fleet.ParseRuntimeScenario(page, []byte(text), criproxy.CheckMethod)
				return err
			}
			_, err := fleet.ParseScenario(page, []byte(text))
			return err
		},
		"SimulationRules": func(page, text string) error {
			_, err := simulated.ParseRules(simulated.RulesFile{Name: page, Data: []byte(text)})
			return err
		},
		"WherryConfiguration":  func(_, text string) error { return load("--wherry-config", text) },
		"KubeletConfiguration": func(_, text string) error { return load("--config", text) },
	}
	seen := map[string]int{}
	check := func(page, text string) {
		text, _, _ = strings.Cut(text, "\nEOF") // a file in a command of the shell
		kind := regexp.MustCompile(`(?m)^kind: (\w+)$`).FindStringSubmatch(text)
		if kind == nil || accept[kind[1]] == nil {
			return
		}
		seen[kind[1]]++
		if err := accept[kind[1]](page, text); err != nil {
			t.Errorf("%s: %s: %v", page, kind[1], err)
		}
	}
	pages, err := filepath.Glob("../../docs/*.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, page := range pages {
		data, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range shownFile.FindAllStringSubmatch(string(data), -1) {
			check(page, m[1]+strings.ReplaceAll("\n"+m[2], "\n    ", "\n"))
		}
	}
	examples, err := filepath.Glob("../../examples/fleet/*.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range examples {
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		check(file, string(data))
	}
	for kind := range accept {
		if seen[kind] == 0 {
			t.Errorf("no page shows a %s: the pattern no longer finds them", kind)
		}
	}
}
