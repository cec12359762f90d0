package config

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	"github.com/wherry-node/wherry/internal/core/inorder"
)

// setting is one field or gate with its value.
type setting struct {
	path    string // path of the field or gate in the file
	subject string // path, followed by the flag that set it
	name    string // name of the field or gate in the notice that lists defaults of Kubernetes without effect here
	use     fieldUse
	value   string // value as the file would have it
	usual   bool   // the value is the default
}

// acts reports whether the value would have an effect in upstream's kubelet that this agent lacks.
func (s setting) acts() bool {
	switch {
	case s.use.why == "" || s.use.state == stateMeaningless:
		return false
	case s.usual:
		return s.use.defaultActs
	}
	return s.value != "" && !slices.Contains(s.use.inert, s.value)
}

// useNotices returns notices about settings without effect: one for each reason among the user's settings, and one for all
// defaults of Kubernetes. set maps paths to the flag that set them, or to "" for the file.
func useNotices(c *Config, set map[string]string) []Notice {
	asked, usual := map[string][]setting{}, map[string][]string{}
	for _, s := range append(fieldSettings(c, set), gateSettings(c)...) {
		switch {
		case !s.acts():
		case s.use.state == stateRefused && !s.usual: // useErrors returns an error for the setting
		case s.usual:
			usual[s.use.why] = append(usual[s.use.why], s.name)
		default:
			asked[s.use.why] = append(asked[s.use.why], s)
		}
	}
	var notices []Notice
	for why, all := range asked {
		notices = append(notices, askedNotice(why, all))
		delete(usual, why)
	}
	inorder.Sort(notices, func(a, b Notice) int { return strings.Compare(a.Subject, b.Subject) })
	if len(usual) == 0 || c.Simulated != nil { // on a simulated machine it does not matter that a default has no effect
		return notices
	}
	var lines []string
	for _, why := range slices.Sorted(maps.Keys(usual)) {
		lines = append(lines, why+" ("+strings.Join(usual[why], ", ")+")")
	}
	return append(notices, Notice{NoticeNotHonoured, "defaults of Kubernetes",
		"some defaults of Kubernetes have no effect on this node yet: " + strings.Join(lines, "; ")})
}

// useErrors returns errors for settings that the agent must not ignore, because the node would be less safe than the user
// believes.
func useErrors(c *Config, set map[string]string) (errs []error) {
	for _, s := range append(fieldSettings(c, set), gateSettings(c)...) {
		if s.use.state == stateRefused && !s.usual && s.acts() {
			errs = append(errs, &fieldError{s.path, fmt.Sprintf("%s: %s is refused, because the node does not do this, and would be less safe than the setting says: %s", s.subject, s.value, s.use.why)})
		}
	}
	return errs
}

func askedNotice(why string, all []setting) Notice {
	var subjects, values []string
	for _, s := range all {
		subjects = append(subjects, s.subject)
		if s.use.state == stateNotHonoured {
			values = append(values, s.value)
		}
	}
	n := Notice{NoticeNotHonoured, strings.Join(subjects, ", "), why}
	switch len(values) {
	case 0:
	case 1:
		n.Message = values[0] + " has no effect: " + why
	default:
		n.Message = strings.Join(values, ", ") + " have no effect: " + why
	}
	return n
}

// fieldSettings returns every field of KubeletConfiguration as a setting. set maps the fields that the user has set to their flags.
func fieldSettings(c *Config, set map[string]string) []setting {
	defaults := baseConfig().Kubelet
	defaultEviction(&defaults)
	var all []setting
	for _, path := range slices.Sorted(maps.Keys(fields)) {
		s := setting{path: path, subject: path, name: path, use: fields[path]}
		if flag := set[path]; flag != "" {
			s.subject += " (--" + flag + ")"
		}
		value, ok := lookup(reflect.ValueOf(&c.Kubelet), path)
		before, had := lookup(reflect.ValueOf(&defaults), path)
		s.usual = !ok || had && printed(before) == printed(value)
		if ok && !isNothing(value) {
			s.value = printed(value)
		}
		all = append(all, s)
	}
	return all
}

// isNothing reports whether a list or map has no effect: it is empty, or has only thresholds of zero percent.
func isNothing(v reflect.Value) bool {
	switch v.Kind() {
	case reflect.Slice:
		return v.Len() == 0
	case reflect.Map:
		for i := v.MapRange(); i.Next(); {
			if i.Value().Kind() != reflect.String || i.Value().String() != "0%" {
				return false
			}
		}
		return true
	}
	return false
}

// gateSettings returns every gate of a kubelet. A gate that is on because of AllAlpha or AllBeta counts as a default, and the
// notice about defaults names it.
func gateSettings(c *Config) []setting {
	var all []setting
	for _, name := range slices.Sorted(maps.Keys(gateUses)) {
		on := c.Gates.Enabled(name)
		s := setting{path: gatePath + name, subject: gatePath + name, name: name, use: gateUses[name], value: fmt.Sprint(on), usual: on == gateFacts[name].on}
		if _, own := c.Kubelet.FeatureGates[name]; !own && !s.usual && s.acts() {
			s.usual, s.use = true, s.use.byDefault()
		}
		all = append(all, s)
	}
	return all
}

// idleFlags are flags that set no field and have no effect, each with the remedy.
var idleFlags = map[string]string{
	"lock-file":                 "the agent locks its root directory",
	"exit-on-lock-contention":   "the agent locks its root directory",
	"experimental-mounter-path": "the agent mounts by system calls, without a program: remove the flag",
}

// flagNotices returns notices about flags that set no field, and have no effect or are deprecated.
func (f *flagSet) flagNotices() []Notice {
	var notices []Notice
	for _, flag := range slices.Sorted(maps.Keys(idleFlags)) {
		if f.Changed(flag) && f.Lookup(flag).Value.String() != f.Lookup(flag).DefValue {
			notices = append(notices, Notice{NoticeNotHonoured, "--" + flag, "no effect: " + idleFlags[flag]})
		}
	}
	for _, flag := range []string{"minimum-container-ttl-duration", "maximum-dead-containers-per-container", "maximum-dead-containers"} {
		if f.Changed(flag) {
			notices = append(notices, Notice{NoticeDeprecated, "--" + flag, "Kubernetes will remove it: ended containers go when disk runs short (evictionHard)"})
		}
	}
	return notices
}

// valueNotices returns notices about combinations of values that work, but have effects that a user may not expect.
func valueNotices(c Config) []Notice {
	var notices []Notice
	kc := &c.Kubelet
	if kc.ReadOnlyPort != 0 {
		notices = append(notices, Notice{NoticeDeprecated, "readOnlyPort (--read-only-port)", "anybody who reaches the port reads pods and statistics: use the port with authentication and set 0"})
	}
	if *kc.Authentication.Anonymous.Enabled && string(kc.Authorization.Mode) == "AlwaysAllow" {
		notices = append(notices, Notice{NoticeChanged, "authorization.mode (--authorization-mode)", "anonymous requests may do everything on this node: set Webhook, or authentication.anonymous.enabled: false"})
	}
	return notices
}
