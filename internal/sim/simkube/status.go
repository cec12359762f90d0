package simkube

import (
	"net/netip"
	"slices"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// checkStatus returns the errors for which an API server rejects a pod's status.
func checkStatus(was, p *v1.Pod) field.ErrorList {
	path := field.NewPath("status")
	errs := checkGenerations(&p.Status, path)
	if p.Status.QOSClass != was.Status.QOSClass {
		errs = append(errs, field.Invalid(path.Child("qosClass"), p.Status.QOSClass, "field is immutable"))
	}
	errs = append(errs, checkEnds(was, p, path)...)
	errs = append(errs, checkUsers(p, path)...)
	errs = append(errs, checkAddresses(path.Child("podIPs"), podIPs(was), podIPs(p))...)
	if len(p.Status.HostIPs) > 0 {
		if p.Status.HostIPs[0].IP != p.Status.HostIP {
			errs = append(errs, field.Invalid(path.Child("hostIPs").Index(0).Child("ip"), p.Status.HostIPs[0].IP, "must be equal to `hostIP`"))
		}
		errs = append(errs, checkAddresses(path.Child("hostIPs"), hostIPs(was), hostIPs(p))...)
	}
	return errs
}

// checkGenerations rejects negative generations and invalid names of conditions.
func checkGenerations(s *v1.PodStatus, path *field.Path) (errs field.ErrorList) {
	if s.ObservedGeneration < 0 {
		errs = append(errs, field.Invalid(path.Child("observedGeneration"), s.ObservedGeneration, "must be a non-negative integer"))
	}
	for i, c := range s.Conditions {
		at := path.Child("conditions").Index(i)
		if c.ObservedGeneration < 0 {
			errs = append(errs, field.Invalid(at.Child("observedGeneration"), c.ObservedGeneration, "must be a non-negative integer"))
		}
		for _, why := range validation.IsQualifiedName(string(c.Type)) {
			errs = append(errs, field.Invalid(at.Child("type"), c.Type, why))
		}
	}
	return errs
}

// checkEnds rejects a status in which a terminated container is no longer terminated, unless its policy or rule restarts it
// after that exit code, or a rule of the pod may restart all containers.
func checkEnds(was, p *v1.Pod, path *field.Path) (errs field.ErrorList) {
	check := func(name string, old, now []v1.ContainerStatus, again func(name string, code int32) bool) {
		for i := range old {
			end := old[i].State.Terminated
			if end == nil {
				continue
			}
			for j := range now {
				if now[j].Name == old[i].Name && now[j].State.Terminated == nil && !again(old[i].Name, end.ExitCode) {
					errs = append(errs, field.Forbidden(path.Child(name).Index(i).Child("state"), "may not be transitioned to non-terminated state"))
				}
			}
		}
	}
	among := func(specs []v1.Container) func(string, int32) bool {
		return func(name string, code int32) bool {
			for i := range specs {
				if specs[i].Name == name {
					return startsAgain(&was.Spec, &specs[i], code)
				}
			}
			return false
		}
	}
	if !restartsAll(&was.Spec) {
		check("containerStatuses", was.Status.ContainerStatuses, p.Status.ContainerStatuses, among(was.Spec.Containers))
		check("initContainerStatuses", was.Status.InitContainerStatuses, p.Status.InitContainerStatuses, among(was.Spec.InitContainers))
	}
	check("ephemeralContainerStatuses", was.Status.EphemeralContainerStatuses, p.Status.EphemeralContainerStatuses,
		func(string, int32) bool { return false })
	return errs
}

// startsAgain applies the restart policy: a rule of the container for the exit code, or its own policy, or the pod's.
func startsAgain(s *v1.PodSpec, c *v1.Container, code int32) bool {
	policy := string(s.RestartPolicy)
	if c.RestartPolicy != nil {
		policy = string(*c.RestartPolicy)
		for _, r := range c.RestartPolicyRules {
			if r.ExitCodes != nil && slices.Contains(r.ExitCodes.Values, code) == (r.ExitCodes.Operator == v1.ContainerRestartRuleOnExitCodesOpIn) {
				return true
			}
		}
	}
	return policy == string(v1.RestartPolicyAlways) || policy == string(v1.RestartPolicyOnFailure) && code != 0
}

func restartsAll(s *v1.PodSpec) bool {
	for _, list := range [][]v1.Container{s.InitContainers, s.Containers} {
		for i := range list {
			for _, r := range list[i].RestartPolicyRules {
				if r.Action == v1.ContainerRestartRuleActionRestartAllContainers {
					return true
				}
			}
		}
	}
	return false
}

// checkUsers rejects user and group IDs that are negative or too large.
func checkUsers(p *v1.Pod, path *field.Path) (errs field.ErrorList) {
	for name, list := range map[string][]v1.ContainerStatus{
		"containerStatuses": p.Status.ContainerStatuses, "initContainerStatuses": p.Status.InitContainerStatuses,
		"ephemeralContainerStatuses": p.Status.EphemeralContainerStatuses,
	} {
		for i := range list {
			if list[i].User == nil || list[i].User.Linux == nil {
				continue
			}
			u, at := list[i].User.Linux, path.Child(name).Index(i).Child("user", "linux")
			for _, why := range validation.IsValidUserID(u.UID) {
				errs = append(errs, field.Invalid(at.Child("uid"), u.UID, why))
			}
			for _, gid := range append([]int64{u.GID}, u.SupplementalGroups...) {
				for _, why := range validation.IsValidGroupID(gid) {
					errs = append(errs, field.Invalid(at.Child("gid"), gid, why))
				}
			}
		}
	}
	return errs
}

// checkAddresses rejects new values that are not addresses, and more than one address per family.
func checkAddresses(path *field.Path, was, is []string) (errs field.ErrorList) {
	had, families := map[string]bool{}, map[bool]int{}
	for _, ip := range was {
		had[ip] = true
	}
	for i, ip := range is {
		addr, err := netip.ParseAddr(ip)
		if err != nil && !had[ip] {
			errs = append(errs, field.Invalid(path.Index(i), ip, "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)"))
		}
		families[addr.Is6()]++
	}
	if families[true] > 1 || families[false] > 1 {
		errs = append(errs, field.Invalid(path, is, "may specify no more than one IP for each IP family"))
	}
	return errs
}

func podIPs(p *v1.Pod) (out []string) {
	for _, ip := range p.Status.PodIPs {
		out = append(out, ip.IP)
	}
	return out
}

func hostIPs(p *v1.Pod) (out []string) {
	for _, ip := range p.Status.HostIPs {
		out = append(out, ip.IP)
	}
	return out
}
