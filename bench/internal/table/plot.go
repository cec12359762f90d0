package table

import (
	"fmt"
	"html"
	"math"
	"slices"
	"strings"
)

// Series is one line of a plot: the times of events, in seconds.
type Series struct {
	Name  string
	Times []float64
}

// This is the plot's geometry, in pixels.
const (
	plotWidth, plotHeight       = 760, 400
	plotLeft, plotRight         = 60, 20
	plotTop, plotBottom         = 40, 50
	plotInnerWidth, innerHeight = plotWidth - plotLeft - plotRight, plotHeight - plotTop - plotBottom
)

// Plot draws an SVG that shows, for each series, the share of its events that had occurred by each point in time. The SVG has a white
// background and no script, so that any viewer can show it.
func Plot(title, axis string, series []Series) string {
	most := 0.0
	for _, s := range series {
		for _, t := range s.Times {
			most = max(most, t)
		}
	}
	step := niceStep(most / 8)
	end := max(step, math.Ceil(most/step)*step)
	x := func(t float64) float64 { return plotLeft + t/end*plotInnerWidth }
	y := func(share float64) float64 { return plotTop + (1-share)*innerHeight }

	var b strings.Builder
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" viewBox="0 0 %d %d" font-family="sans-serif" font-size="12">`+"\n",
		plotWidth, plotHeight, plotWidth, plotHeight)
	fmt.Fprintf(&b, `<rect width="100%%" height="100%%" fill="#fff"/><text x="%d" y="22" font-size="15">%s</text>`+"\n", plotLeft, html.EscapeString(title))
	for share := 0.0; share <= 1.001; share += 0.25 {
		fmt.Fprintf(&b, `<path d="M%d %.1fh%d" stroke="#ddd"/><text x="%d" y="%.1f" text-anchor="end">%.0f %%</text>`+"\n",
			plotLeft, y(share), plotInnerWidth, plotLeft-8, y(share)+4, share*100)
	}
	for t := 0.0; t <= end+step/2; t += step {
		fmt.Fprintf(&b, `<path d="M%.1f %dv%d" stroke="#eee"/><text x="%.1f" y="%d" text-anchor="middle">%g</text>`+"\n",
			x(t), plotTop, innerHeight, x(t), plotHeight-plotBottom+18, math.Round(t*100)/100)
	}
	fmt.Fprintf(&b, `<text x="%d" y="%d" text-anchor="middle">%s</text>`+"\n", plotLeft+plotInnerWidth/2, plotHeight-12, html.EscapeString(axis))
	colours := []string{"#888", "#d1495b", "#00798c", "#edae49"}
	for i, s := range series {
		colour := colours[i%len(colours)]
		fmt.Fprintf(&b, `<text x="%d" y="%d" fill="%s">%s</text>`+"\n", plotLeft+12, plotTop+16+16*i, colour, html.EscapeString(s.Name))
		times := slices.Sorted(slices.Values(s.Times))
		if len(times) == 0 {
			continue
		}
		fmt.Fprintf(&b, `<path fill="none" stroke="%s" stroke-width="2" d="M%.1f %.1f`, colour, x(0), y(0))
		for j, t := range times {
			fmt.Fprintf(&b, "H%.1fV%.1f", x(t), y(float64(j+1)/float64(len(times))))
		}
		b.WriteString("\"/>\n")
	}
	b.WriteString("</svg>\n")
	return b.String()
}

// niceStep returns the smallest number of the form 1, 2 or 5 times a power of ten that is not smaller than v.
func niceStep(v float64) float64 {
	if v <= 0 {
		return 1
	}
	power := math.Pow(10, math.Floor(math.Log10(v)))
	for _, f := range []float64{1, 2, 5} {
		if f*power >= v {
			return f * power
		}
	}
	return 10 * power
}
