package termsvg

import (
	"fmt"
	"html"
	"strconv"
	"strings"
	"unicode/utf8"
)

// The sizes are in pixels: of a character's cell, of the text, and of the edge around the terminal.
const (
	cellWidth, cellHeight = 8.4, 17.0
	fontSize              = 14
	edge                  = 12.0
)

// look is how a character looks.
type look struct {
	colour        string // "": that of ordinary text
	bold, reverse bool
}

const (
	background = "#14181f"
	ordinary   = "#d8dee9"
)

// colours has the colours for the parameters of the sequence that sets them; 2 (faint) is a colour, too.
var colours = map[int]string{2: "#8b95a5", 31: "#ff7b72", 32: "#4fb36b", 33: "#e3b341", 34: "#6ea8fe", 35: "#d2a8ff", 36: "#56b6c2"}

// cell is a character of the terminal; 0: nothing was written there.
type cell struct {
	char rune
	look look
}

// SVG returns a picture of a terminal of this size to which text was written. title describes it to those who do not see it.
func SVG(text string, columns, rows int, title string) (string, error) {
	grid, err := play(text, columns, rows)
	if err != nil {
		return "", err
	}
	width, height := float64(columns)*cellWidth+2*edge, float64(rows)*cellHeight+2*edge
	var b strings.Builder
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" width="%.0f" height="%.0f" viewBox="0 0 %.0f %.0f" role="img">`+"\n<title>%s</title>\n", width, height, width, height, html.EscapeString(title))
	fmt.Fprintf(&b, `<rect width="100%%" height="100%%" rx="8" fill="%s"/>`+"\n", background)
	fmt.Fprintf(&b, `<g font-family="ui-monospace,'SFMono-Regular','DejaVu Sans Mono',Menlo,Consolas,monospace" font-size="%d" fill="%s">`+"\n", fontSize, ordinary)
	shapes := map[string]*strings.Builder{}
	var order []string
	draw := func(attributes, path string) {
		if shapes[attributes] == nil {
			shapes[attributes] = &strings.Builder{}
			order = append(order, attributes)
		}
		shapes[attributes].WriteString(path)
	}
	var texts strings.Builder
	for y, line := range grid {
		for x := 0; x < len(line); {
			n := 1
			for x+n < len(line) && line[x+n].look == line[x].look && isShape(line[x+n].char) == isShape(line[x].char) {
				n++
			}
			left, top := edge+float64(x)*cellWidth, edge+float64(y)*cellHeight
			colour := line[x].look.fill()
			if line[x].look.reverse {
				draw(`fill="`+colour+`"`, rectangle(left, top, float64(n)*cellWidth, cellHeight))
				colour = background
			}
			if isShape(line[x].char) {
				for i := range n {
					shape(line[x+i].char, left+float64(i)*cellWidth, top, colour, draw)
				}
			} else {
				span(&texts, line[x:x+n], left, top, colour)
			}
			x += n
		}
	}
	for _, attributes := range order {
		fmt.Fprintf(&b, `<path %s d="%s"/>`+"\n", attributes, shapes[attributes])
	}
	b.WriteString(texts.String())
	b.WriteString("</g>\n</svg>\n")
	return b.String(), nil
}

// fill returns the colour of the text, or of the ground if the look is reversed.
func (l look) fill() string {
	switch {
	case l.colour != "":
		return l.colour
	case l.bold:
		return "#ffffff"
	}
	return ordinary
}

// span writes characters of one look. Each text has its length, so that the columns are right in every font. Where there are several spaces, another
// text begins, because a viewer may show them as one.
func span(b *strings.Builder, cells []cell, left, top float64, colour string) {
	attributes := ""
	if cells[0].look.bold {
		attributes = ` font-weight="bold"`
	}
	if colour != ordinary {
		attributes += ` fill="` + colour + `"`
	}
	isSpace := func(i int) bool { return i >= len(cells) || cells[i].char == ' ' || cells[i].char == 0 }
	for i := 0; i < len(cells); i++ {
		if isSpace(i) {
			continue
		}
		var text strings.Builder
		n := 0
		for ; !isSpace(i+n) || !isSpace(i+n+1); n++ {
			if isSpace(i + n) {
				text.WriteByte(' ')
			} else {
				text.WriteRune(cells[i+n].char)
			}
		}
		fmt.Fprintf(b, `<text x="%.1f" y="%.1f" textLength="%.1f"%s>%s</text>`+"\n", left+float64(i)*cellWidth, top+cellHeight*0.76, float64(n)*cellWidth, attributes, html.EscapeString(text.String()))
		i += n
	}
}

// isShape reports whether a character is drawn as a shape, so that it fills its cell in every font.
func isShape(r rune) bool {
	return r >= '▁' && r <= '█' || strings.ContainsRune("░▒▓▚╱╳", r)
}

// shape draws a character as a shape.
func shape(r rune, x, y float64, colour string, draw func(attributes, path string)) {
	fill := `fill="` + colour + `"`
	stroke := `fill="none" stroke="` + colour + `" stroke-width="1.6"`
	up := fmt.Sprintf("M%.1f %.1fL%.1f %.1f", x+0.8, y+cellHeight-3, x+cellWidth-0.8, y+3)
	switch r {
	case '░':
		draw(fill+` fill-opacity=".3"`, rectangle(x, y+2, cellWidth, cellHeight-4))
	case '▒':
		draw(fill+` fill-opacity=".6"`, rectangle(x, y+2, cellWidth, cellHeight-4))
	case '▓':
		draw(fill+` fill-opacity=".8"`, rectangle(x, y+2, cellWidth, cellHeight-4))
	case '▚':
		draw(fill, rectangle(x, y+2, cellWidth/2, cellHeight/2-2)+rectangle(x+cellWidth/2, y+cellHeight/2, cellWidth/2, cellHeight/2-2))
	case '╱':
		draw(stroke, up)
	case '╳':
		draw(stroke, up+fmt.Sprintf("M%.1f %.1fL%.1f %.1f", x+0.8, y+3, x+cellWidth-0.8, y+cellHeight-3))
	case '█':
		draw(fill, rectangle(x, y+2, cellWidth, cellHeight-4))
	default: // ▁ to ▇: eighths of the height
		h := (cellHeight - 4) * float64(r-'▁'+1) / 8
		draw(fill, rectangle(x, y+cellHeight-2-h, cellWidth-1, h))
	}
}

// rectangle returns a path around a rectangle.
func rectangle(x, y, width, height float64) string {
	return fmt.Sprintf("M%.1f %.1fh%.1fv%.1fh-%.1fz", x, y, width, height, width)
}

// play returns what a terminal shows to which text was written.
func play(text string, columns, rows int) ([][]cell, error) {
	grid := make([][]cell, rows)
	for i := range grid {
		grid[i] = make([]cell, columns)
	}
	x, y := 0, 0
	var now look
	for text != "" {
		if rest, ok := strings.CutPrefix(text, "\r\n"); ok {
			x, y, text = 0, y+1, rest
			continue
		}
		if rest, ok := strings.CutPrefix(text, "\x1b["); ok {
			end := strings.IndexFunc(rest, func(r rune) bool { return r >= '@' })
			if end < 0 {
				return nil, fmt.Errorf("a sequence without an end: %q", text)
			}
			if err := sequence(rest[:end], rest[end], &now, &x, &y, grid); err != nil {
				return nil, err
			}
			text = rest[end+1:]
			continue
		}
		r, n := utf8.DecodeRuneInString(text)
		if r < ' ' || x >= columns || y >= rows {
			return nil, fmt.Errorf("%q in column %d of line %d of a terminal of %dx%d", r, x, y, columns, rows)
		}
		grid[y][x] = cell{r, now}
		x++
		text = text[n:]
	}
	return grid, nil
}

// sequence does what a control sequence of the terminal does.
func sequence(parameters string, command byte, now *look, x, y *int, grid [][]cell) error {
	switch {
	case command == 'H' && parameters == "":
		*x, *y = 0, 0
	case command == 'K' && parameters == "" && *y < len(grid):
		clear(grid[*y][*x:])
	case command == 'J' && parameters == "" && *y < len(grid):
		clear(grid[*y][*x:])
		for _, line := range grid[*y+1:] {
			clear(line)
		}
	case command == 'm':
		for p := range strings.SplitSeq(parameters, ";") {
			n, err := strconv.Atoi(p)
			switch {
			case err != nil:
				return fmt.Errorf("colour %q: %w", parameters, err)
			case n == 0:
				*now = look{}
			case n == 1:
				now.bold = true
			case n == 7:
				now.reverse = true
			case colours[n] != "":
				now.colour = colours[n]
			default:
				return fmt.Errorf("colour %q is unknown", parameters)
			}
		}
	default:
		return fmt.Errorf("the sequence %q%c is unknown", parameters, command)
	}
	return nil
}
