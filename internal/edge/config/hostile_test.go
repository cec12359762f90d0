package config_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/wherry-node/wherry/internal/edge/config"
)

// Files of almost the maximum size that are expensive to parse are either accepted or rejected within seconds.
func TestHostileFiles(t *testing.T) {
	t.Parallel()
	const head = "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n"
	fill := func(s string) string { return strings.Repeat(s, (1<<20-len(head)-1000)/len(s)) }
	keys := func(line string) string {
		var b strings.Builder
		for i := 0; b.Len() < 1<<20-1000; i++ {
			b.WriteString(strings.ReplaceAll(line, "N", strings.Repeat("k", i%7)+string(rune('a'+i%26))+strings.Repeat("x", i/26%500)))
		}
		return b.String()
	}
	for name, body := range map[string]string{
		"brackets":           "maxPods: " + fill("["),
		"braces":             "maxPods: " + fill("{a: "),
		"unknown fields":     keys("N: 1\n"),
		"signals":            "evictionHard:\n" + keys("  N: 1%\n"),
		"one long key":       fill("a") + ": 1\n",
		"one long value":     "clusterDomain: " + fill("a") + "\n",
		"indented":           fill(" -"),
		"aliases":            "a: &a [x,x,x,x,x,x,x,x,x]\nb: &b [*a,*a,*a,*a,*a,*a,*a,*a,*a]\nc: &c [*b,*b,*b,*b,*b,*b,*b,*b,*b]\nd: &d [*c,*c,*c,*c,*c,*c,*c,*c,*c]\ne: &e [*d,*d,*d,*d,*d,*d,*d,*d,*d]\nf: &f [*e,*e,*e,*e,*e,*e,*e,*e,*e]\ng: [*f,*f,*f,*f,*f,*f,*f,*f,*f]\n",
		"comments in a list": "a: [" + fill("1, # x\n") + "]\n", // an unknown field, so its line is looked up
		"list of addresses":  "clusterDNS:\n" + fill("- 10.0.0.1\n"),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			file := filepath.Join(t.TempDir(), "c.yaml")
			if err := os.WriteFile(file, []byte(head+body), 0o600); err != nil {
				t.Fatal(err)
			}
			began := time.Now()
			_, _, err := config.Load([]string{"--config=" + file})
			if took := time.Since(began); took > 30*time.Second { // 1.4 s on a machine with two CPUs
				t.Errorf("took %s, and ended with %.200v", took, err)
			}
		})
	}
}
