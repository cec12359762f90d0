package packages

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// Source is the input from which packages are made.
type Source struct {
	// Version is the version of the packages. Kubernetes is the Kubernetes version that the agent follows, without a leading v.
	Version, Kubernetes string
	// Time is the time of the commit. It is the modification time of every file in the packages.
	Time time.Time
	// Programs has the agent's program for each architecture, as Go names it.
	Programs map[string][]byte
	// Manual has the manual pages by file name, and Completion the completion scripts by shell.
	Manual, Completion map[string][]byte
	// Deploy is the directory with systemd units and package scripts. License and Changelog are texts.
	Deploy             string
	License, Changelog []byte
}

var versionLine = regexp.MustCompile(`(?m)^wherry (\S+) .*\nKubernetes v(\S+)$`)

// Describe returns a Source without Programs. It runs program, an agent for this machine, to get the versions, the manual and the
// completion. The rest comes from the checkout.
func Describe(ctx context.Context, checkout, program string) (*Source, error) {
	out, err := output(ctx, checkout, program, "version")
	if err != nil {
		return nil, err
	}
	m := versionLine.FindSubmatch(out)
	if m == nil {
		return nil, fmt.Errorf("read the version of %s: it says %q", program, out)
	}
	s := &Source{Kubernetes: string(m[2]), Deploy: filepath.Join(checkout, "deploy"), Programs: map[string][]byte{}, Completion: map[string][]byte{}}
	if s.Version, s.Time, err = version(ctx, checkout, string(m[1])); err != nil {
		return nil, err
	}
	if s.Manual, err = manual(ctx, program); err != nil {
		return nil, err
	}
	for _, shell := range []string{"bash", "zsh", "fish"} {
		if s.Completion[shell], err = output(ctx, checkout, program, "completion", shell); err != nil {
			return nil, err
		}
	}
	if s.License, err = os.ReadFile(filepath.Join(checkout, "LICENSE")); err != nil {
		return nil, err
	}
	s.Changelog, err = os.ReadFile(filepath.Join(checkout, "CHANGELOG.md"))
	return s, err
}

// Changed is the suffix of the version if the checkout has changes that are not committed.
const Changed = ".changed"

// version returns the version of the packages and the time of the commit. If the commit has the tag of the release, the version is that of
// the release; otherwise it sorts before that release and after the versions of older commits.
func version(ctx context.Context, checkout, release string) (string, time.Time, error) {
	out, err := output(ctx, checkout, "git", "log", "-1", "--format=%ct %h", "--abbrev=8")
	if err != nil {
		return "", time.Time{}, err
	}
	stamp, commit, _ := strings.Cut(strings.TrimSpace(string(out)), " ")
	seconds, err := strconv.ParseInt(stamp, 10, 64)
	if err != nil {
		return "", time.Time{}, fmt.Errorf("read the time of the commit: %w", err)
	}
	at := time.Unix(seconds, 0).UTC()
	tags, err := output(ctx, checkout, "git", "tag", "--points-at", "HEAD")
	if err != nil {
		return "", time.Time{}, err
	}
	changed, err := output(ctx, checkout, "git", "status", "--porcelain") // the go command uses the same check for vcs.modified
	if err != nil {
		return "", time.Time{}, err
	}
	for tag := range strings.FieldsSeq(string(tags)) {
		if tag == "v"+release && len(changed) == 0 {
			return release, at, nil
		}
	}
	v := release + "~git" + at.Format("20060102150405") + "." + commit
	if len(changed) > 0 {
		v += Changed
	}
	return v, at, nil
}

func manual(ctx context.Context, program string) (map[string][]byte, error) {
	dir, err := os.MkdirTemp("", "wherry-man-")
	if err != nil {
		return nil, err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	if _, err := output(ctx, dir, program, "man", dir); err != nil {
		return nil, err
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	pages := map[string][]byte{}
	for _, e := range entries {
		if pages[e.Name()], err = os.ReadFile(filepath.Join(dir, e.Name())); err != nil {
			return nil, err
		}
	}
	if len(pages) == 0 {
		return nil, errors.New("the program has no manual pages")
	}
	return pages, nil
}

func output(ctx context.Context, dir, program string, args ...string) ([]byte, error) {
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Dir = dir
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("%s %s: %w: %s", filepath.Base(program), strings.Join(args, " "), err, bytes.TrimSpace(stderr.Bytes()))
	}
	return out, nil
}
