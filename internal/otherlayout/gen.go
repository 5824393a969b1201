// Package maps, in this folder, is not imported: its files take the place of
// those of the same name in maps when a test builds headgate as another version
// might be, with another program and another layout of maps.
package maps

//go:generate sh generate.sh
