package yamldoc

import "bytes"

// Part is one document of a file with several.
type Part struct {
	Text   []byte
	Before int // the number of lines of the file that precede the document
}

// Split cuts a file into its documents, at the markers "---" and "..." at the beginning of a line. It leaves out documents that contain
// only comments and directives.
func Split(data []byte) []Part {
	data = bytes.TrimPrefix(data, []byte("\xef\xbb\xbf"))
	var out []Part
	cur, empty := Part{}, true
	flush := func() {
		if !empty {
			out = append(out, cur)
		}
	}
	line := 0
	for len(data) > 0 {
		end := bytes.IndexByte(data, '\n') + 1
		if end == 0 {
			end = len(data)
		}
		text := data[:end]
		data = data[end:]
		line++
		t := bytes.TrimRight(text, " \t\r\n")
		marker := bytes.Equal(t, []byte("---")) || bytes.HasPrefix(t, []byte("--- ")) || bytes.HasPrefix(t, []byte("---\t"))
		if marker || bytes.Equal(t, []byte("...")) {
			flush()
			cur, empty = Part{Before: line - 1}, true
			text = append([]byte("   "), text[3:]...) // text on the same line as the marker belongs to the document
			t = bytes.TrimRight(text, " \t\r\n")
		}
		if empty && bytes.HasPrefix(t, []byte("%")) {
			text = []byte("\n")
			t = nil
		}
		if t = bytes.TrimLeft(t, " \t"); len(t) > 0 && t[0] != '#' {
			empty = false
		}
		cur.Text = append(cur.Text, text...)
	}
	flush()
	return out
}
