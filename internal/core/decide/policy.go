package decide

import (
	"slices"

	v1 "k8s.io/api/core/v1"
)

// MayRestart reports whether a container that ended with this code is started again. The container's own rules come first, then
// its own restart policy, then the pod's ("restartPolicy ... Always, OnFailure, and Never. The default value is Always").
func MayRestart(spec *v1.PodSpec, c *v1.Container, exitCode int32) bool {
	if c.RestartPolicy != nil {
		if rule := MatchingRule(c, exitCode); rule != nil {
			switch rule.Action {
			case v1.ContainerRestartRuleActionRestart, v1.ContainerRestartRuleActionRestartAllContainers:
				return true
			}
		}
	}
	switch restartPolicy(spec, c) {
	case v1.RestartPolicyOnFailure:
		return exitCode != 0
	case v1.RestartPolicyNever:
		return false
	case v1.RestartPolicyAlways:
		return true
	}
	return true
}

// restartPolicy returns the container's own restart policy, or the pod's if the container has none.
func restartPolicy(spec *v1.PodSpec, c *v1.Container) v1.RestartPolicy {
	if c.RestartPolicy != nil {
		switch *c.RestartPolicy {
		case v1.ContainerRestartPolicyAlways:
			return v1.RestartPolicyAlways
		case v1.ContainerRestartPolicyOnFailure:
			return v1.RestartPolicyOnFailure
		case v1.ContainerRestartPolicyNever:
			return v1.RestartPolicyNever
		}
	}
	return spec.RestartPolicy
}

// MatchingRule returns the first restart rule of a container that an exit code matches, or nil.
func MatchingRule(c *v1.Container, exitCode int32) *v1.ContainerRestartRule {
	for i := range c.RestartPolicyRules {
		rule := &c.RestartPolicyRules[i]
		if rule.ExitCodes == nil {
			continue
		}
		in := slices.Contains(rule.ExitCodes.Values, exitCode)
		switch rule.ExitCodes.Operator {
		case v1.ContainerRestartRuleOnExitCodesOpIn:
			if in {
				return rule
			}
		case v1.ContainerRestartRuleOnExitCodesOpNotIn:
			if !in {
				return rule
			}
		}
	}
	return nil
}
