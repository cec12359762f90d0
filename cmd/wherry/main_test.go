package main

import (
	"io"
	"strings"
	"testing"
)

// The error of a command line that is wrong says how the command is used, or where its flags are listed.
func TestWrongCommandLinesAreExplained(t *testing.T) {
	t.Parallel()
	for line, want := range map[string]string{
		"logs":                               "received 0: use wherry logs POD [-c CONTAINER] [flags] (wherry logs --help says more)",
		"exec web":                           "use wherry exec [-it] POD [-c CONTAINER] -- COMMAND [ARG...] [flags] (wherry exec --help says more)",
		"fleet fault":                        "use wherry fleet fault KIND [NODE...] [flags] (wherry fleet fault --help says more)",
		"fleet get web":                      `unknown command "web" for "wherry fleet get": use wherry fleet get [flags]`,
		"fleet fault crash n --delay=5s":     "--delay is for the faults runtime and slow-api, not for crash",
		"fleet fault clock n --oom":          "--oom is for the fault exit, not for clock",
		"fleet scale --much":                 "unknown flag: --much (wherry fleet scale --help lists the flags)",
		"--version":                          "unknown flag: --version (wherry --help lists the flags)",
		"console --fleet=f --socket=/none/s": "no fleet f listens on /none/s: start one with wherry fleet --name f, or name another with --fleet or --socket",
	} {
		root := newRoot()
		root.SetArgs(strings.Fields(line))
		root.SetOut(io.Discard)
		root.SetErr(io.Discard)
		if err := root.Execute(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("wherry %s: error %v, want %q in it", line, err, want)
		}
	}
}
