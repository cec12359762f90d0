package termsvg

import (
	"encoding/xml"
	"io"
	"strings"
	"testing"
)

// The picture is well-formed, and shows the text where and how the program has written it.
func TestSVG(t *testing.T) {
	t.Parallel()
	svg, err := SVG("\x1b[Hold\x1b[H\x1b[1;31ma<b\x1b[0m  c d   e\x1b[K\r\n\x1b[7m x \x1b[0m\x1b[32m█▁╳╱▚░▒▓\x1b[0m\x1b[K\r\n\x1b[J", 20, 4, `a "title" & more`)
	if err != nil {
		t.Fatal(err)
	}
	for d := xml.NewDecoder(strings.NewReader(svg)); ; {
		if _, err := d.Token(); err == io.EOF {
			break
		} else if err != nil {
			t.Fatalf("%v:\n%s", err, svg)
		}
	}
	for _, want := range []string{
		`<text x="12.0" y="24.9" textLength="25.2" font-weight="bold" fill="#ff7b72">a&lt;b</text>`, // three cells from the first on
		`<text x="54.0" y="24.9" textLength="25.2">c d</text>`,
		`<text x="104.4" y="24.9" textLength="8.4">e</text>`,
		`<text x="20.4" y="41.9" textLength="8.4" fill="#14181f">x</text>`, // the ground is behind it
		"<title>a &#34;title&#34; &amp; more</title>",
	} {
		if !strings.Contains(svg, want+"\n") {
			t.Errorf("%s is missing:\n%s", want, svg)
		}
	}
	if strings.Contains(svg, ">old<") || strings.Contains(svg, "NaN") {
		t.Error(svg)
	}
}

// What the picture cannot show is an error.
func TestUnknown(t *testing.T) {
	t.Parallel()
	for _, text := range []string{"\x1b[3;4H", "\x1b[", "\x1b[99m", "\a", "12345", "\r\n\r\n\r\nx", "\x1b[xm"} {
		if svg, err := SVG(text, 4, 2, ""); err == nil {
			t.Errorf("%q: %s", text, svg)
		}
	}
}
