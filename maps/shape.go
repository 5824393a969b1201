package maps

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/btf"
)

// tableVersion is the version of what the tables' numbers mean, where their
// shape does not tell: ticks, TATs, how a tag is made of seed, limit and key.
// Whoever changes one of these raises it.
const tableVersion = 1

// shapesName is the pin beside the maps that says what they look like. Another
// version reads from it what it can take over. (The kernel knows the types too,
// but tells them to CAP_SYS_ADMIN only.)
const shapesName = "shapes"

const shapesRoom = 64 << 10

// shapes describe all maps of a layout.
type shapes struct {
	Layout int
	Table  int // tableVersion
	Maps   map[string]shape
}

// shape describes one map.
type shape struct {
	Type, Flags   uint32
	KeySize, Size uint32
	Key, Value    []field `json:",omitempty"`
}

// field is one number, or an array of numbers, of a key or a value.
type field struct {
	Name     string
	At, Size uint32
}

// describe is the description of the maps that a spec makes.
func describe(spec *ebpf.CollectionSpec) (shapes, error) {
	all := shapes{Layout: LayoutVersion, Table: tableVersion, Maps: map[string]shape{}}
	for name, m := range spec.Maps {
		if _, ok := carriers[name]; !ok {
			continue // of no use to another version
		}
		s := shape{Type: uint32(m.Type), Flags: m.Flags, KeySize: m.KeySize, Size: m.ValueSize}
		value := m.Value
		if name == "events" {
			event, err := spec.Types.AnyTypeByName("event")
			if err != nil {
				return all, fmt.Errorf("describe the events: %w", err)
			}
			value = event
		}
		s.Key, s.Value = fields("", 0, m.Key), fields("", 0, value)
		all.Maps[name] = s
	}
	return all, nil
}

// fields lists the numbers in a type, each by a name that tells what it means:
// counters of reasons by the reason's name, whose place may change.
func fields(name string, at uint32, t btf.Type) []field {
	t = btf.UnderlyingType(t)
	size, err := btf.Sizeof(t)
	if t == nil || err != nil {
		return nil
	}
	switch t := t.(type) {
	case *btf.Struct:
		var all []field
		for _, m := range t.Members {
			member := m.Name
			if name != "" {
				member = name + "." + m.Name
			}
			all = append(all, fields(member, at+m.Offset.Bytes(), m.Type)...)
		}
		return all
	case *btf.Array:
		if _, of := btf.UnderlyingType(t.Type).(*btf.Struct); !of {
			break
		}
		var all []field
		element := uint32(size) / max(t.Nelems, 1)
		for i := range t.Nelems {
			of := strconv.Itoa(int(i))
			if name == "reasons" && i < uint32(bpfReasonREASONS) {
				of = reasonNames[i]
			}
			all = append(all, fields(name+"."+of, at+i*element, t.Type)...)
		}
		return all
	}
	return []field{{name, at, uint32(size)}}
}

// same tells whether two maps of one size can be used the one for the other.
func (s shape) same(o shape) bool {
	return s.Type == o.Type && s.Flags == o.Flags && s.sameKeys(o) && s.Size == o.Size && slices.Equal(s.Value, o.Value)
}

func (s shape) sameKeys(o shape) bool { return s.KeySize == o.KeySize && slices.Equal(s.Key, o.Key) }

// find returns the field of a value by name.
func (s shape) find(name string) (field, bool) {
	i := slices.IndexFunc(s.Value, func(f field) bool { return f.Name == name })
	if i < 0 {
		return field{}, false
	}
	return s.Value[i], true
}

// write pins the description into a folder of maps, unless it is there.
func (s shapes) write(dir string) error {
	path := filepath.Join(dir, shapesName)
	if _, err := os.Stat(path); err == nil {
		return nil
	}
	text, err := json.Marshal(s)
	if err != nil {
		return fmt.Errorf("describe the maps: %w", err)
	}
	if len(text) > shapesRoom {
		return fmt.Errorf("describe the maps: %d bytes, there is room for %d", len(text), shapesRoom)
	}
	m, err := ebpf.NewMap(&ebpf.MapSpec{Name: shapesName, Type: ebpf.Array, KeySize: 4, ValueSize: shapesRoom, MaxEntries: 1})
	if err != nil {
		return mapError(shapesName, dir, err)
	}
	defer m.Close()
	if err := m.Put(uint32(0), append(text, make([]byte, shapesRoom-len(text))...)); err != nil {
		return fmt.Errorf("describe the maps: %w", err)
	}
	if err := m.Pin(path); err != nil {
		return fmt.Errorf("pin the maps' description: %w", err)
	}
	return nil
}

// readShapes reads the description of the maps in a folder. Without one the
// error is an os.ErrNotExist.
func readShapes(dir string) (s shapes, err error) {
	m, err := openPinnedMap(filepath.Join(dir, shapesName), true)
	if err != nil {
		return s, err
	}
	defer m.Close()
	text, err := m.LookupBytes(uint32(0))
	if err != nil {
		return s, fmt.Errorf("read the maps' description in %s: %w", dir, err)
	}
	text, _, _ = bytes.Cut(text, []byte{0})
	if err := json.Unmarshal(text, &s); err != nil {
		return s, fmt.Errorf("read the maps' description in %s: %w", dir, err)
	}
	return s, nil
}
