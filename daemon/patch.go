package daemon

import (
	"fmt"
	"slices"
)

// patch is what a change did to what was added from the command line, so that
// it can be taken back: what it took away, and what it put in the place.
type patch struct {
	Blocks listPatch   `json:"blocks,omitzero"`
	Allows listPatch   `json:"allows,omitzero"`
	Rules  []rulePatch `json:"rules,omitempty"`

	Overrides []overridePatch `json:"overrides,omitempty"`
	Notices   []noticePatch   `json:"notices,omitempty"` // to all hosts
}

// listPatch is the part of one list. Imports are there whole, if they differ at
// all: their prefixes lie in files of their own.
type listPatch struct {
	Removed []Entry  `json:"removed,omitempty"`
	Added   []Entry  `json:"added,omitempty"`
	Imports *imports `json:"imports,omitempty"`
}

type imports struct {
	Was bulks `json:"was"`
	Is  bulks `json:"is"`
}

// rulePatch is the part of one rule; nil where there was, or is, none.
type rulePatch struct {
	Was *addedRule `json:"was,omitempty"`
	Is  *addedRule `json:"is,omitempty"`
}

// patchOf is what makes b of a; nil if they are the same.
func patchOf(a, b state) *patch {
	p := patch{
		Blocks: listPatchOf(a.Blocks, b.Blocks, a.BlockImports, b.BlockImports),
		Allows: listPatchOf(a.Allows, b.Allows, a.AllowImports, b.AllowImports),

		Overrides: overridePatches(a, b),
		Notices:   noticePatches(a.Posted, b.Posted),
	}
	for _, r := range a.Rules {
		if i := b.rule(r.Name); i < 0 {
			p.Rules = append(p.Rules, rulePatch{Was: &r})
		} else if now := b.Rules[i]; !sameRule(now, r) {
			p.Rules = append(p.Rules, rulePatch{Was: &r, Is: &now})
		}
	}
	for _, r := range b.Rules {
		if a.rule(r.Name) < 0 {
			p.Rules = append(p.Rules, rulePatch{Is: &r})
		}
	}
	if p.Blocks.empty() && p.Allows.empty() && len(p.Rules)+len(p.Overrides)+len(p.Notices) == 0 {
		return nil
	}
	return &p
}

func (l listPatch) empty() bool { return len(l.Removed)+len(l.Added) == 0 && l.Imports == nil }

func listPatchOf(a, b []Entry, manyA, manyB bulks) (l listPatch) {
	l.Removed, l.Added = lacking(a, b), lacking(b, a)
	if !slices.EqualFunc(manyA, manyB, sameImport) {
		l.Imports = &imports{manyA, manyB}
	}
	return l
}

// lacking returns the entries of a that are not in b.
func lacking(a, b []Entry) (out []Entry) {
	for _, e := range a {
		if !slices.ContainsFunc(b, func(o Entry) bool { return sameEntry(e, o) && sameMoment(e.End, o.End) }) {
			out = append(out, e)
		}
	}
	return out
}

// sameEntry compares what a step of the clock does not move: who set an entry,
// when he did by his clock, and what for.
func sameEntry(a, b Entry) bool {
	return a.Prefix == b.Prefix && a.Reason == b.Reason && a.At.Equal(b.At) && a.By == b.By
}

func sameImport(a, b *bulk) bool {
	return a.File == b.File && a.Reason == b.Reason && a.At.Equal(b.At) && slices.Equal(a.Without, b.Without)
}

func sameRule(a, b addedRule) bool { return a.Text == b.Text && a.At.Equal(b.At) && a.End.Equal(b.End) }

// takeBack returns s without what p did. load reads the prefixes of an import.
// Where others have changed the same since, it is an error that says so, and
// nothing is taken back.
func (p *patch) takeBack(s state, load func(*bulk) error) (state, error) {
	var err error
	if s.Blocks, s.BlockImports, err = p.Blocks.takeBack(s.Blocks, s.BlockImports, load); err != nil {
		return s, err
	}
	if s.Allows, s.AllowImports, err = p.Allows.takeBack(s.Allows, s.AllowImports, load); err != nil {
		return s, err
	}
	for _, r := range p.Rules {
		if s, err = r.takeBack(s); err != nil {
			return s, err
		}
	}
	for _, o := range p.Overrides {
		if s, err = o.takeBack(s); err != nil {
			return s, err
		}
	}
	return s, nil
}

func (l listPatch) takeBack(list []Entry, many bulks, load func(*bulk) error) ([]Entry, bulks, error) {
	list = slices.Clone(list)
	for _, e := range l.Added {
		i := slices.IndexFunc(list, func(o Entry) bool { return sameEntry(o, e) })
		if i < 0 {
			return nil, nil, fmt.Errorf("%s is no longer as that change left it: it ended, or was changed since", e.Prefix)
		}
		list = slices.Delete(list, i, i+1)
	}
	for _, e := range l.Removed {
		if !slices.ContainsFunc(list, func(o Entry) bool { return sameEntry(o, e) }) {
			list = withEntry(list, e)
		}
	}
	if l.Imports == nil {
		return list, many, nil
	}
	if !slices.EqualFunc(many, l.Imports.Is, sameImport) {
		return nil, nil, fmt.Errorf("imports are no longer as that change left them: some ended, or were changed since")
	}
	was := slices.Clone(l.Imports.Was)
	for i, b := range was {
		if j := slices.IndexFunc(many, func(o *bulk) bool { return o.File == b.File }); j >= 0 {
			b.prefixes = many[j].prefixes
		} else if err := load(b); err != nil {
			return nil, nil, err
		}
		was[i] = b
	}
	return list, was, nil
}

func (r rulePatch) takeBack(s state) (state, error) {
	name := ""
	if r.Is != nil {
		name = r.Is.Name
	} else {
		name = r.Was.Name
	}
	i := s.rule(name)
	switch {
	case r.Is == nil && i >= 0, r.Is != nil && (i < 0 || !sameRule(s.Rules[i], *r.Is)):
		return s, fmt.Errorf("rule %s is no longer as that change left it: it ended, or was changed since", name)
	case r.Was == nil:
		return s.withoutRule(name), nil
	}
	return s.withRule(*r.Was), nil
}

// files notes the files of imports that are needed to take p back.
func (p *patch) files(used map[string]bool) {
	for _, l := range []listPatch{p.Blocks, p.Allows} {
		if l.Imports == nil {
			continue
		}
		for _, b := range l.Imports.Was {
			used[b.File] = true
		}
	}
}
