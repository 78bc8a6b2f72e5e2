module headrace

go 1.24
