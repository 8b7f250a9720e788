"""The third list of tables for `bench.planner --fresh third`, fixed before anything was trained on any of them.

The second list had been read by the time that the verdict got its present form (decision 0046). Four of its tables had
never been run, so they stand here as well. Of the others, ranges and levels were read in the tables, and nothing else.
"""

from bench.fresh_tables import Ends, dealt, declared, districts, insured, smokers, vocabulary
from bench.real_tables import RealTable


def pensions(sites: int) -> RealTable:
    """k401ksubs: who may join a pension plan."""
    return declared(
        "wooldridge", "k401ksubs", "e401k", sites=sites, levels=["marr", "male", "pira"],
        numbers={"inc": (0, 200), "age": (25, 65), "fsize": (1, 13), "nettfa": (-100, 500)},
    )  # fmt: skip


def private_patients(sites: int) -> RealTable:
    """DoctorVisits: who is insured privately."""
    return declared(
        "AER", "DoctorVisits", "private", sites=sites, levels=["gender", "nchronic", "lchronic"],
        numbers={"visits": (0, 9), "age": (0.15, 0.75), "income": (0, 1.5), "illness": (0, 5), "reduced": (0, 14),
                 "health": (0, 12)},
    )  # fmt: skip


def unions(sites: int) -> RealTable:
    """PSID7682: who is in a union."""
    return declared(
        "AER", "PSID7682", "union", sites=sites,
        numbers={"experience": (0, 50), "weeks": (0, 52), "education": (4, 17), "wage": (0, 5000)},
        levels=["occupation", "industry", "south", "smsa", "married", "gender", "ethnicity", "year"],
    )  # fmt: skip


def colon(sites: int) -> RealTable:
    """Who died or fell ill again of 888 patients with cancer of the colon, two rows each."""
    return declared(
        "survival", "colon", "status", sites=sites, numbers={"age": (18, 90), "nodes": (0, 35)},
        levels=["rx", "sex", "obstruct", "perfor", "adhere", "differ", "extent", "surg", "node4", "etype"],
    )  # fmt: skip


def out_of_work(sites: int) -> RealTable:
    """rwm1984: who is out of work in Germany."""
    return declared(
        "COUNT", "rwm1984", "outwork", sites=sites, levels=["edlevel", "female", "married", "kids"],
        numbers={"docvis": (0, 50), "hospvis": (0, 10), "age": (25, 65), "hhninc": (0, 15), "educ": (7, 18)},
    )  # fmt: skip


def approvals(sites: int) -> RealTable:
    """Loanapp: which loans were approved."""
    return declared(
        "wooldridge", "loanapp", "approve", sites=sites,
        numbers={"loanamt": (0, 500), "appinc": (0, 300), "dep": (0, 8), "price": (0, 700), "hrat": (0, 60),
                 "obrat": (0, 80), "loanprc": (0, 1.5), "unem": (0, 12)},
        levels=["suffolk", "married", "self", "mortg", "cons", "pubrec", "fixadj", "gift", "cosign", "unver", "black",
                "hispan", "male", "chist", "thick", "prop"],
    )  # fmt: skip


def cells(sites: int) -> RealTable:
    """Which of 2,019 pictures of cells were segmented well, by 20 of their measures."""
    numbers: dict[str, Ends] = {"angle_ch_1": (0, 180), "area_ch_1": (0, 2000), "convex_hull_area_ratio_ch_1": (1, 3)}
    numbers |= {"convex_hull_perim_ratio_ch_1": (0.5, 1), "eq_ellipse_lwr_ch_1": (1, 10), "fiber_length_ch_1": (0, 200)}
    numbers |= {"fiber_width_ch_1": (0, 35), "length_ch_1": (0, 100), "perim_ch_1": (0, 400), "width_ch_1": (0, 55)}
    numbers |= {"shape_bfr_ch_1": (0, 1), "shape_p_2_a_ch_1": (1, 8)}
    for channel in (1, 3, 4):
        numbers |= {f"avg_inten_ch_{channel}": (0, 1000), f"diff_inten_density_ch_{channel}": (0, 500)}
        numbers |= {f"entropy_inten_ch_{channel}": (0, 10), f"var_inten_ch_{channel}": (0, 700)}
    return declared("modeldata", "cells", "class", sites=sites, numbers=numbers, levels=[])


def parole(sites: int) -> RealTable:
    """Recid: who was not arrested again, of 1,445 former prisoners."""
    return declared(
        "wooldridge", "recid", "cens", sites=sites,
        numbers={"priors": (0, 20), "educ": (0, 20), "rules": (0, 20), "age": (200, 900), "tserved": (0, 200)},
        levels=["black", "alcohol", "drugs", "super", "married", "felon", "workprg", "property", "person"],
    )  # fmt: skip


def poverty(sites: int) -> RealTable:
    """WVS: whether governments do too little, enough or too much for the poor."""
    return declared(
        "carData", "WVS", "poverty", sites=sites, numbers={"age": (18, 95)},
        levels=["religion", "degree", "country", "gender"],
    )  # fmt: skip


def leaves(sites: int) -> RealTable:
    """leaf_id_flavia: the species of 1,907 leaves, of 32, by 20 measures and two kinds of edges."""
    numbers: dict[str, Ends] = {
        "diameter": (500, 2000), "area": (0, 1_300_000), "perimeter": (1500, 6500), "physiological_width": (0, 1200),
        "aspect_ratio": (0, 1.3), "rectangularity": (0.3, 0.9), "circularity": (0, 0.9), "compactness": (0, 250),
        "narrow_factor": (0, 45), "perimeter_ratio_diameter": (2, 5.5), "perimeter_ratio_lw": (1.5, 3),
        "num_convex_points": (0, 200), "perimeter_convexity": (0.5, 1), "eccentriciry": (0, 1), "contrast": (0, 210),
        "inverse_difference_moments": (0.5, 1), "entropy": (0, 9), "mean_red_val": (0, 200),
        "mean_green_val": (0, 230), "mean_blue_val": (0, 200),
    }  # fmt: skip
    levels = ["apex", "base", "shape", "smooth_edge", "toothed_edge"]
    return declared("modeldata", "leaf_id_flavia", "species", sites=sites, numbers=numbers, levels=levels)


def hourly_wages(sites: int) -> RealTable:
    """SLID: what 3,987 people in Ontario earn per hour: a number."""
    return declared(
        "carData", "SLID", "wages", sites=sites, classes=False, label_bounds=(0, 50), levels=["sex", "language"],
        numbers={"education": (0, 20), "age": (16, 95)},
    )  # fmt: skip


def grades(sites: int) -> RealTable:
    """gpa2: grades of 4,137 students of a college: a number."""
    return declared(
        "wooldridge", "gpa2", "colgpa", sites=sites, classes=False, label_bounds=(0, 4),
        numbers={"sat": (400, 1600), "tothrs": (0, 140), "verbmath": (0.2, 1.7), "hsize": (0, 10), "hsperc": (0, 100)},
        levels=["athlete", "female", "white", "black"],
    )  # fmt: skip


def arithmetic(sites: int) -> RealTable:
    """Egsingle: mathematics in 60 schools, each a site: a number."""
    return declared(
        "mlmRev", "egsingle", "math", sites=sites, classes=False, label_bounds=(-6, 6), by="schoolid",
        numbers={"year": (-2.5, 2.5), "size": (0, 1500), "lowinc": (0, 100), "mobility": (0, 70)},
        levels=["grade", "retained", "female", "black", "hispanic"],
    )  # fmt: skip


def attainment(sites: int) -> RealTable:
    """ScotsSec: attainment in 19 secondary schools, each a site: a number."""
    return declared(
        "mlmRev", "ScotsSec", "attain", sites=sites, classes=False, label_bounds=(1, 10), by="second",
        numbers={"verbal": (-30, 40)}, levels=["sex", "social"],
    )  # fmt: skip


def coursework(sites: int) -> RealTable:
    """Gcsemv: coursework in those of 73 schools that train on at least ten pupils: a number."""
    return declared(
        "mlmRev", "Gcsemv", "course", sites=sites, classes=False, label_bounds=(0, 100), by="school", rows=10,
        numbers={"written": (0, 90)}, levels=["gender"],
    )  # fmt: skip


_SMALL = (colon, out_of_work, approvals, cells, parole, poverty, leaves, hourly_wages, grades)
_LEFT_OF_SECOND = (insured, smokers, vocabulary)
THIRD = dealt(
    (pensions, private_patients, unions), (*_SMALL, *_LEFT_OF_SECOND),
    {arithmetic: 60, attainment: 19, coursework: 73, districts: 60},
)  # fmt: skip
