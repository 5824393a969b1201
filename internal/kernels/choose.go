package main

import (
	"cmp"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// wanted are the kernels that are booted: the floor, those of Debian's
// releases, and the newest. The first one must be refused.
var wanted = []series{
	{name: "5.10", pattern: `5\.10\.`, refused: true},
	{name: "6.1", pattern: `6\.1\.`},
	{name: "6.12", pattern: `6\.12\.`},
	{name: "6.18", pattern: `6\.18\.`},
	{name: "7.x", pattern: `7\.`},
}

// series is one line of kernels.
type series struct {
	name    string
	pattern string // of the version, at its start
	refused bool   // too old: maps.Open must say so
}

// choose returns the package of the newest kernel of a series among names,
// "" if there is none. It takes the small kernels for virtual machines.
func (s series) choose(names []string) string {
	matches := regexp.MustCompile(`^linux-image-` + s.pattern + `[^-]*(-[0-9][^-]*)?-cloud-amd64$`).MatchString
	var all []string
	for _, name := range names {
		if matches(name) {
			all = append(all, name)
		}
	}
	if len(all) == 0 {
		return ""
	}
	return slices.MaxFunc(all, byNumbers)
}

var numbers = regexp.MustCompile(`[0-9]+`)

// byNumbers compares names by the numbers in them, as versions.
func byNumbers(a, b string) int {
	return slices.CompareFunc(numbers.FindAllString(a, -1), numbers.FindAllString(b, -1), func(x, y string) int {
		m, _ := strconv.Atoi(x)
		n, _ := strconv.Atoi(y)
		return cmp.Compare(m, n)
	})
}

// parts are the packages that together hold a kernel and its modules. From 7.1
// on an image is an empty package that depends on the other two.
func parts(image string, names []string) []string {
	version := strings.TrimPrefix(image, "linux-image-")
	all := []string{image}
	for _, part := range []string{"linux-binary-", "linux-modules-"} {
		if slices.Contains(names, part+version) {
			all = append(all, part+version)
		}
	}
	return all
}
