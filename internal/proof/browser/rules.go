package browser

import "embed"

// files has rules.js: a JavaScript expression whose value is the list of the problems of a page.
//
//go:embed rules.js
var files embed.FS

// CheckAccess fails the test for each rule of accessibility that the page breaks: names, labels, headings, roles, contrast.
func (b *Tab) CheckAccess(page string) {
	b.t.Helper()
	rules, err := files.ReadFile("rules.js")
	if err != nil {
		b.t.Fatal(err)
	}
	var wrong []string
	b.Eval(string(rules), &wrong)
	for _, w := range wrong {
		b.t.Errorf("%s: %s", page, w)
	}
}
