// Package yamldoc reads files in YAML or JSON, with errors that name file, line and field. Configuration files, manifests, rules and
// templates are all read with it.
//
//	d := yamldoc.Document{Name: "shapes.yaml"}
//	err := d.Decode(data, "wherry.dev/v1alpha1", "FleetTemplate", &file)
//	d.Bad("groups[0].cpus", "use a positive number") // a problem that the type does not show
//
// A caller whose errors are not texts (package manifest) uses Split and Tree alone.
//
// Contract: it does no IO. The caller bounds the length of data. The number of problems of a Document is bounded, and so is the size that
// its aliases expand it to. The lines are parsed only when a problem needs one, so a correct file is parsed once.
package yamldoc
