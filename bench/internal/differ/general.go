package differ

import (
	"regexp"
	"strings"
)

var numbers = regexp.MustCompile(`#\d+|(running|terminated|waiting) \d+|^\d+ ready`)

// generals replaces the names of containers in each element with their kinds, and removes numbers that vary from pod to pod.
func (d *differ) generals(elements []string) (out []string) {
	for _, e := range elements {
		e = numbers.ReplaceAllStringFunc(d.general(e), func(m string) string { return strings.TrimRight(strings.TrimLeft(m, "0123456789 "), "#0123456789 ") })
		out = append(out, e)
	}
	return out
}

// general replaces the names of containers by their kinds, such as main or sidecar.
func (d *differ) general(text string) string {
	for _, name := range d.c.containers() {
		text = strings.ReplaceAll(text, name, d.c.kind(name))
	}
	return text
}

var (
	identity = regexp.MustCompile(`[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}|\b[0-9a-f]{12,64}\b`)
	podName  = regexp.MustCompile(`case-\d+-\d+-(upstream|wherry)(-\d+)?(-bench-(upstream|wherry)(-\d+)?)?`)
	instant  = regexp.MustCompile(`\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)`)
	address  = regexp.MustCompile(`\b127(\.\d+){3}\b`)
	fromPort = regexp.MustCompile(`ADDRESS:(32[7-9]\d\d|3[3-9]\d{3}|[4-6]\d{4})\b`) // the port of the client, from the range in which Linux chooses
	moment   = regexp.MustCompile(`\b\d+(\.\d+)?(ns|µs|ms|s)\b|\b\d+m\d+(\.\d+)?s\b`)
)

// message replaces the parts of a message that differ in every run: names, IDs, addresses, times.
func (d *differ) message(text string) string {
	text = podName.ReplaceAllString(text, "POD")
	text = identity.ReplaceAllString(text, "ID")
	text = instant.ReplaceAllString(text, "TIME")
	text = fromPort.ReplaceAllString(address.ReplaceAllString(text, "ADDRESS"), "ADDRESS:PORT")
	text = moment.ReplaceAllString(text, "TIME")
	return d.general(text)
}
