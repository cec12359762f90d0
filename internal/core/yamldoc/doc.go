// Package yamldoc reads files in YAML or JSON, with errors that name file, line and field.
//
//	d := yamldoc.Document{Name: "shapes.yaml"}
//	err := d.Decode(data, "wherry.dev/v1alpha1", "FleetTemplate", &file)
//	d.Bad("groups[0].cpus", "use a positive number") // a problem that the type does not show
//
// Contract: it does no IO. The caller bounds the length of data. The number of problems is bounded.
package yamldoc
