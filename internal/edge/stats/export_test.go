package stats

import (
	"reflect"
	"unsafe"

	"github.com/prometheus/client_golang/prometheus"
)

// Update is the flag with which tests rewrite the expected pages in testdata.
var Update = update

// OnePod returns the Pods of a node with one pod.
func OnePod() Pods { return onePod() }

// Family is a metric that is created anew for each scrape.
type Family struct {
	Kind prometheus.ValueType
	Desc *prometheus.Desc
}

// CAdvisorFamilies returns all metrics that /metrics/cadvisor can serve.
func CAdvisorFamilies() []Family { return familiesIn(reflect.ValueOf(newCadvisorFamilies()).Elem()) }

// ResourceFamilies returns all metrics that /metrics/resource can serve.
func ResourceFamilies() []Family {
	f := newResourceFamilies()
	return familiesIn(reflect.ValueOf(&f).Elem())
}

// Collectors returns the collectors of /metrics/probes.
func (p *Probed) Collectors() []prometheus.Collector {
	return []prometheus.Collector{p.total, p.took}
}

// KindWithLabels returns the kind of a collector with labels: histogram, counter or gauge. It returns "" for any other collector.
func KindWithLabels(c prometheus.Collector) string {
	switch c := c.(type) {
	case *distributions:
		return "histogram"
	case *amounts:
		return map[prometheus.ValueType]string{prometheus.CounterValue: "counter", prometheus.GaugeValue: "gauge"}[c.kind()]
	}
	return ""
}

// AddSeries adds a series to a histogram with labels.
func AddSeries(c prometheus.Collector) {
	if d, ok := c.(*distributions); ok {
		d.WithLabelValues(make([]string, len(d.of.Value().labelNames()))...)
	}
}

// familiesIn returns the families in the fields of a struct. It reads them with package unsafe, because the fields are not exported.
func familiesIn(v reflect.Value) (out []Family) {
	for i := range v.NumField() {
		switch field := v.Field(i); {
		case field.Type() == reflect.TypeFor[family]():
			f := (*family)(unsafe.Pointer(field.UnsafeAddr()))
			out = append(out, Family{f.kind, f.desc})
		case field.Kind() == reflect.Array:
			for i := range field.Len() {
				f := (*family)(unsafe.Pointer(field.Index(i).UnsafeAddr()))
				out = append(out, Family{f.kind, f.desc})
			}
		case field.Kind() == reflect.Struct:
			out = append(out, familiesIn(field)...)
		}
	}
	return out
}
