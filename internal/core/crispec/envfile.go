package crispec

import (
	"errors"
	"fmt"
	"io/fs"
	"strings"

	v1 "k8s.io/api/core/v1"
)

func (in *EnvInput) fileKey(ref *v1.FileKeySelector) (string, bool, error) {
	if in.EnvFile == nil {
		return "", false, containerErr("fileKeyRef of volume %q: this node cannot read files of volumes", ref.VolumeName)
	}
	optional := isTrue(ref.Optional)
	data, err := in.EnvFile(ref.VolumeName, ref.Path)
	if err != nil {
		if optional && errors.Is(err, fs.ErrNotExist) {
			return "", false, nil
		}
		return "", false, containerErr("read environment file %q of volume %q: %w", ref.Path, ref.VolumeName, err)
	}
	value, ok, err := EnvFileValue(string(data), ref.Key)
	if err != nil {
		return "", false, containerErr("environment file %q of volume %q: %w", ref.Path, ref.VolumeName, err)
	}
	if !ok && !optional {
		return "", false, containerErr("environment variable key %q not found in file %q of volume %q", ref.Key, ref.Path, ref.VolumeName)
	}
	return value, ok, nil
}

// EnvFileValue finds a key in a file of the format that fileKeyRef documents: NAME='value'. The value, in single quotes, is literal and
// may span lines. Blank lines and # comments are skipped. EnvFileValue returns the first match, and does not check the lines after it.
func EnvFileValue(data, key string) (value string, ok bool, err error) {
	for line := 1; len(data) > 0; {
		here := line
		text, rest, _ := strings.Cut(data, "\n")
		text = strings.TrimLeft(strings.TrimSuffix(text, "\r"), " \t")
		if text == "" || text[0] == '#' {
			data, line = rest, line+1
			continue
		}
		name, after, found := strings.Cut(text, "=")
		switch {
		case !found:
			return "", false, fmt.Errorf("line %d: '=' is missing", here)
		case name == "" || strings.TrimRight(name, " \t") != name:
			return "", false, fmt.Errorf("line %d: want NAME='value' with nothing between NAME and '='", here)
		case strings.HasPrefix(after, " ") || strings.HasPrefix(after, "\t"):
			// As in a shell, NAME= 'x' sets NAME to the empty string.
			if name == key {
				return "", false, nil
			}
			data, line = rest, line+1
			continue
		case !strings.HasPrefix(after, "'"):
			return "", false, fmt.Errorf("line %d: the value must be in single quotes", here)
		}
		// The value may span lines: find its begin in data.
		_, quoted, _ := strings.Cut(data, "='")
		value, tail, closed := strings.Cut(quoted, "'")
		if !closed {
			return "", false, fmt.Errorf("line %d: the single quote is not closed", here)
		}
		value = strings.ReplaceAll(value, "\r\n", "\n")
		tail, rest, _ = strings.Cut(tail, "\n")
		if tail = strings.TrimSpace(tail); tail != "" && tail[0] != '#' {
			return "", false, fmt.Errorf("line %d: unexpected text after the closing quote", here)
		}
		if name == key {
			return value, value != "", nil
		}
		data, line = rest, line+1+strings.Count(value, "\n")
	}
	return "", false, nil
}
