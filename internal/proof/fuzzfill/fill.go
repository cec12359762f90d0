package fuzzfill

import (
	"math/rand/v2"
	"reflect"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Fill fills the value that p points to with random data, deep enough to reach every field of a container in a pod.
func Fill(p any, r *rand.Rand) { fill(reflect.ValueOf(p).Elem(), r, 0) }

func fill(v reflect.Value, r *rand.Rand, depth int) {
	switch x := v.Addr().Interface().(type) {
	case *resource.Quantity:
		*x = resource.MustParse([]string{"0", "1", "-1", "1n", "7Ei", "9223372036854775807", "1e30", "250m", "64Mi"}[r.IntN(9)])
		return
	case *metav1.Time:
		*x = metav1.NewTime(moment(r))
		return
	case *time.Time:
		*x = moment(r)
		return
	case *metav1.FieldsV1:
		return
	}
	switch v.Kind() {
	case reflect.Struct:
		for i := range v.NumField() {
			if v.Field(i).CanSet() {
				fill(v.Field(i), r, depth+1)
			}
		}
	case reflect.Pointer:
		if r.IntN(3) == 0 && depth < 14 {
			v.Set(reflect.New(v.Type().Elem()))
			fill(v.Elem(), r, depth+1)
		}
	case reflect.Slice:
		if n := r.IntN(3); n > 0 && depth < 14 {
			v.Set(reflect.MakeSlice(v.Type(), n, n))
			for i := range n {
				fill(v.Index(i), r, depth+1)
			}
		}
	case reflect.Map:
		v.Set(reflect.MakeMap(v.Type()))
		for range r.IntN(3) {
			k, e := reflect.New(v.Type().Key()).Elem(), reflect.New(v.Type().Elem()).Elem()
			fill(k, r, depth+1)
			fill(e, r, depth+1)
			v.SetMapIndex(k, e)
		}
	case reflect.String:
		words := []string{
			"", "a", "settings", "keys", "file", "cpu", "memory", "hugepages-2Mi", "limits.cpu", "requests.hugepages-2Mi", "$(a)", "metadata.labels['a']",
			"status.podIP", "Always", "Localhost", "RuntimeDefault", "None", "Strict", "SIGTERM", "x_y\x00", "spec.nodeName", "ClusterFirst",
			"kubernetes.io/config.source", "localhost/", "Guaranteed", "::1",
		}
		v.SetString(words[r.IntN(len(words))])
	case reflect.Bool:
		v.SetBool(r.IntN(2) == 0)
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		v.SetInt([]int64{0, 1, -1, 80, 1 << 31, -1 << 63, 1<<63 - 1}[r.IntN(7)])
	case reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		v.SetUint(uint64(r.Uint32()))
	}
}

// moment returns the zero time, or a time within a minute of the beginning of the year 2030.
func moment(r *rand.Rand) time.Time {
	if r.IntN(3) == 0 {
		return time.Time{}
	}
	return time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC).Add(time.Duration(r.IntN(120)-60) * time.Second)
}
